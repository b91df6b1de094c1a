package cli

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
)

// dumpOptions are the options of kafka-dump-log, by its names.
type dumpOptions struct {
	files        []string
	print        bool // records, with what is in them
	deep         bool // records
	sanity       bool // --index-sanity-check
	verify       bool // --verify-index-only
	skipMetadata bool // --skip-record-metadata
	maxMessage   int64
	maxBytes     int64 // math.MaxInt32: all
	parser       recordParser
	help         bool
	version      bool
}

// dumpOption is one option: whether it takes a value, and what it does.
type dumpOption struct {
	name  string
	value optionValue
	label string // of the value
	doc   string
	set   func(o *dumpOptions, value string) error
}

type optionValue uint8

const (
	noValue optionValue = iota
	needsValue
	mayHaveValue
)

func dumpOptionTable() []dumpOption {
	number := func(field func(*dumpOptions) *int64, name string) func(*dumpOptions, string) error {
		return func(o *dumpOptions, v string) error {
			n, err := strconv.ParseInt(v, 10, 32)
			if err != nil || n < 0 {
				return fmt.Errorf("--%s %s: allowed are numbers from 0 to %d", name, v, math.MaxInt32)
			}
			*field(o) = n
			return nil
		}
	}
	flag := func(fields ...func(*dumpOptions) *bool) func(*dumpOptions, string) error {
		return func(o *dumpOptions, _ string) error {
			for _, f := range fields {
				*f(o) = true
			}
			return nil
		}
	}
	printing := func(o *dumpOptions) *bool { return &o.print }
	deep := func(o *dumpOptions) *bool { return &o.deep }
	internal := func(topic string) func(*dumpOptions, string) error {
		return func(o *dumpOptions, _ string) error {
			o.print, o.deep = true, true
			o.parser.choose(topic)
			return nil
		}
	}
	decoder := func(name string, field func(*dumpOptions) *valueDecoder) func(*dumpOptions, string) error {
		return func(o *dumpOptions, v string) (err error) {
			o.print, o.deep = true, true
			if v != "" {
				if *field(o), err = findDecoder(v); err != nil {
					err = fmt.Errorf("--%s %s: %w", name, v, err)
				}
			}
			return err
		}
	}
	return []dumpOption{
		{"files", needsValue, "file1,file2,...", "the files and directories to dump; they may also be named without an option", func(o *dumpOptions, v string) error {
			for name := range strings.SplitSeq(v, ",") {
				if name != "" {
					o.files = append(o.files, name)
				}
			}
			return nil
		}},
		{"deep-iteration", noValue, "", "print the records of each batch, not the batch alone", flag(deep)},
		{"print-data-log", noValue, "", "print the records with their keys and values; every decoder option does so too", flag(printing, deep)},
		{"skip-record-metadata", noValue, "", "print of the records only keys and values", flag(func(o *dumpOptions) *bool { return &o.skipMetadata })},
		{"key-decoder-class", mayHaveValue, "class", "how keys are printed: " + decoderNames() + ", with the package or without (StringDecoder)",
			decoder("key-decoder-class", func(o *dumpOptions) *valueDecoder { return &o.parser.key })},
		{"value-decoder-class", mayHaveValue, "class", "how values are printed, as for keys",
			decoder("value-decoder-class", func(o *dumpOptions) *valueDecoder { return &o.parser.value })},
		{"offsets-decoder", noValue, "", "print records as those of __consumer_offsets", internal(offsetsTopic)},
		{"transaction-log-decoder", noValue, "", "print records as those of __transaction_state", internal(transactionTopic)},
		{"cluster-metadata-decoder", noValue, "", "print records as those of __cluster_metadata", internal(metadataTopic)},
		{"share-group-state-decoder", noValue, "", "print records as those of __share_group_state", internal(shareTopic)},
		{"remote-log-metadata-decoder", noValue, "", "print records as those of __remote_log_metadata", internal(remoteTopic)},
		{"index-sanity-check", noValue, "", "check indexes as a start of the broker does, without printing their entries", flag(func(o *dumpOptions) *bool { return &o.sanity })},
		{"verify-index-only", noValue, "", "compare indexes with the log without printing their entries", flag(func(o *dumpOptions) *bool { return &o.verify })},
		{"max-message-size", needsValue, "bytes", "the largest batch that an index entry may point to (5242880)",
			number(func(o *dumpOptions) *int64 { return &o.maxMessage }, "max-message-size")},
		{"max-bytes", needsValue, "bytes", "read only so much of each log (all)",
			number(func(o *dumpOptions) *int64 { return &o.maxBytes }, "max-bytes")},
		{"version", noValue, "", "print the Kafka release whose lines these are", flag(func(o *dumpOptions) *bool { return &o.version })},
		{"help", noValue, "", "print this", flag(func(o *dumpOptions) *bool { return &o.help })},
	}
}

// parseDumpOptions reads the command line as the tool's parser does (jopt-simple): --name value,
// --name=value, one dash or two, in any order.
func parseDumpOptions(args []string) (*dumpOptions, error) {
	o := &dumpOptions{maxMessage: 5 << 20, maxBytes: math.MaxInt32}
	table := dumpOptionTable()
	for i := 0; i < len(args); i++ {
		arg := args[i]
		if arg == "--" {
			o.files = append(o.files, args[i+1:]...)
			break
		}
		if !strings.HasPrefix(arg, "-") || arg == "-" {
			o.files = append(o.files, arg)
			continue
		}
		name, value, has := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		if name == "h" {
			name = "help"
		}
		var opt *dumpOption
		for j := range table {
			if table[j].name == name {
				opt = &table[j]
			}
		}
		switch {
		case opt == nil:
			return nil, fmt.Errorf("%s is not a recognized option; --help names those that are", name)
		case opt.value == noValue && has:
			return nil, fmt.Errorf("option %s takes no argument", name)
		case opt.value == needsValue && !has:
			if i++; i == len(args) {
				return nil, fmt.Errorf("option %s requires an argument", name)
			}
			value = args[i]
		case opt.value == mayHaveValue && !has && i+1 < len(args) && !strings.HasPrefix(args[i+1], "-"):
			i++
			value = args[i]
		}
		if err := opt.set(o, value); err != nil {
			return nil, err
		}
	}
	return o, nil
}

func writeDumpHelp(w io.Writer) {
	fmt.Fprint(w, `Print what is in the files of a log, as kafka-dump-log does: segments, indexes, producers'
snapshots; and checkpoints, partition.metadata and meta.properties. Nothing is changed.

Usage:
  ottla dump [options] [file or directory...]

Options:
`)
	const width = 28
	for _, o := range dumpOptionTable() {
		left := "  --" + o.name
		switch o.value {
		case needsValue:
			left += " " + o.label
		case mayHaveValue:
			left += " [" + o.label + "]"
		}
		if len(left) > width {
			fmt.Fprintf(w, "%s\n%*s  %s\n", left, width, "", o.doc)
		} else {
			fmt.Fprintf(w, "%-*s  %s\n", width, left, o.doc)
		}
	}
}
