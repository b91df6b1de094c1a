// Package cli is the commands of ottla that are tools: what Kafka's own tools do, with their
// options and their output lines.
package cli

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"ottla/log/vfs"

	"github.com/spf13/cobra"
)

// Dump is `ottla dump`, which does the job of kafka-dump-log (org.apache.kafka.tools.DumpLogSegments):
// it prints what is in the files of a log, one line a batch, record, index entry or producer. Its
// options are that tool's, and its lines are those of Kafka 4.4.0, byte for byte; what differs on
// purpose is in compat/differences.md. More than that tool it takes files without --files, and
// directories, and prints the checkpoints, partition.metadata and meta.properties.
func Dump() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "dump [options] [file or directory...]",
		Aliases: []string{"dump-log"},
		Short:   "Print what is in the files of a log (kafka-dump-log)",
		// An option may or may not be followed by its value, which pflag cannot read.
		DisableFlagParsing: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			o, err := parseDumpOptions(args)
			switch {
			case err != nil:
				return err
			case o.help:
				return cmd.Help()
			case o.version:
				_, err := fmt.Fprintln(cmd.OutOrStdout(), dumpRelease)
				return err
			case len(o.files) == 0:
				writeDumpHelp(cmd.ErrOrStderr())
				return errors.New("no files are named: give them as arguments or with --files")
			}
			return dump(vfs.OS(), o, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	cmd.SetHelpFunc(func(cmd *cobra.Command, _ []string) { writeDumpHelp(cmd.OutOrStdout()) })
	return cmd
}

// dumpRelease is the Kafka whose lines are printed; it is what --version says, as scripts ask.
const dumpRelease = "4.4.0"

// dumpDepth is how far below a directory that is named files are looked for: a log directory's
// partitions are one below it.
const dumpDepth = 2

// dumper dumps one file after the other.
type dumper struct {
	o      *dumpOptions
	fs     vfs.FS
	out    *bufio.Writer
	errOut io.Writer
	line   []byte // the line that is being made

	files, failed int
	mismatches    []found // in indexes
	timestamps    []found // in time indexes
	disorder      []found
	notFound      []found
	gaps          []found // in logs
}

// found is what is wrong with a file, as pairs of what is there and what should be.
type found struct {
	file  string
	pairs []pair
}

type pair struct{ a, b int64 }

// note adds a pair to what was found in a file.
func note(list *[]found, file string, p pair) {
	if n := len(*list); n == 0 || (*list)[n-1].file != file {
		*list = append(*list, found{file: file})
	}
	last := &(*list)[len(*list)-1]
	if len(last.pairs) < maxDumpPairs {
		last.pairs = append(last.pairs, p)
	}
}

// maxDumpPairs bounds what is kept of one file's mismatches.
const maxDumpPairs = 1 << 20

// dump prints all files. A file that cannot be read whole does not keep the others from being
// printed, and makes the result an error.
func dump(fsys vfs.FS, o *dumpOptions, out, errOut io.Writer) error {
	d := &dumper{o: o, fs: fsys, out: bufio.NewWriterSize(out, 64<<10), errOut: errOut}
	for _, name := range o.files {
		name = javaPath(name)
		info, err := fsys.Stat(name)
		if err == nil && info.IsDir() {
			err = d.directory(name, dumpDepth)
		} else {
			err = d.file(name)
		}
		if err != nil {
			return err
		}
	}
	d.report()
	if err := d.out.Flush(); err != nil {
		return err
	}
	if d.failed > 0 {
		return fmt.Errorf("%d of %d files could not be dumped to their end", d.failed, d.files)
	}
	return nil
}

// directory dumps the files in a directory, in the order of their names, and those in the
// directories below it.
func (d *dumper) directory(name string, depth int) error {
	list, err := d.fs.ReadDir(name)
	if err != nil {
		d.files++
		return d.fail(err)
	}
	slices.SortFunc(list, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	for _, e := range list {
		path := filepath.Join(name, e.Name())
		info, err := d.fs.Stat(path)
		switch {
		case err == nil && info.IsDir():
			if depth == 0 {
				continue
			}
			err = d.directory(path, depth-1)
		case e.Name() == ".lock": // empty, and in every log directory
			continue
		default:
			err = d.file(path)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// file dumps one file. The error is that of the output.
func (d *dumper) file(name string) error {
	d.files++
	d.line = append(append(d.line[:0], "Dumping "...), name...)
	d.end()
	if err := d.content(name); err != nil {
		return d.fail(err)
	}
	return nil
}

func (d *dumper) content(name string) error {
	base := filepath.Base(name)
	switch filepath.Ext(base) {
	case ".log", ".checkpoint":
		return d.log(name)
	case ".index":
		return d.index(name)
	case ".timeindex":
		return d.timeIndex(name)
	case ".txnindex":
		return d.txnIndex(name)
	case ".snapshot":
		return d.snapshot(name)
	}
	switch base {
	case "recovery-point-offset-checkpoint", "replication-offset-checkpoint", "log-start-offset-checkpoint", "cleaner-offset-checkpoint":
		return d.checkpoint(name)
	case "leader-epoch-checkpoint":
		return d.epochs(name)
	case "partition.metadata":
		return d.partitionMetadata(name)
	case "meta.properties":
		return d.metaProperties(name)
	}
	if err := d.out.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(d.errOut, "Ignoring unknown file %s\n", name)
	return err
}

// fail ends the line that was begun, says what went wrong with a file, and goes on with the next,
// unless nothing can be written any more.
func (d *dumper) fail(err error) error {
	d.failed++
	if len(d.line) > 0 {
		d.end()
	}
	if err := d.out.Flush(); err != nil {
		return err
	}
	_, err = fmt.Fprintln(d.errOut, says(err))
	return err
}

// end writes the line. An error of the writer stays in it until it is flushed.
func (d *dumper) end() {
	d.line = append(d.line, '\n')
	d.out.Write(d.line)
	d.line = d.line[:0]
}

// report prints what was found in the indexes and logs.
func (d *dumper) report() {
	if d.out.Flush() != nil {
		return
	}
	w := bufio.NewWriter(d.errOut)
	defer w.Flush()
	byFirst := func(a, b pair) int { return cmp.Compare(a.a, b.a) }
	for _, f := range d.mismatches { // by their offset, falling, and of equal ones the last
		slices.SortStableFunc(f.pairs, func(a, b pair) int { return byFirst(b, a) })
		f.print(w, "Mismatches in :", "  Index offset: %d, log offset: %d\n", lastOfEqual(f.pairs))
	}
	for _, f := range d.timestamps {
		f.print(w, "Found timestamp mismatch in :", "  Index timestamp: %d, log timestamp: %d\n", f.pairs)
	}
	for _, f := range d.disorder {
		f.print(w, "Found out of order timestamp in :", "  Index timestamp: %d, Previously indexed timestamp: %d\n", f.pairs)
	}
	for _, f := range d.notFound {
		f.print(w, "The following indexed offsets are not found in :", "Indexed offset: %d, found log offset: %d\n", f.pairs)
	}
	for _, f := range d.gaps {
		slices.SortStableFunc(f.pairs, byFirst)
		f.print(w, "Non-consecutive offsets in ", "  %d is followed by %d\n", lastOfEqual(f.pairs))
	}
}

// print prints what was found in a file: a line with its name, and one a pair.
func (f found) print(w io.Writer, head, line string, pairs []pair) {
	fmt.Fprintf(w, "%s%s\n", head, f.file)
	for _, p := range pairs {
		fmt.Fprintf(w, line, p.a, p.b)
	}
}

// lastOfEqual leaves of neighbours with the same first number the last.
func lastOfEqual(pairs []pair) []pair {
	var kept []pair
	for i, p := range pairs {
		if i+1 == len(pairs) || pairs[i+1].a != p.a {
			kept = append(kept, p)
		}
	}
	return kept
}

// javaPath is a path as Java's File prints it.
func javaPath(name string) string {
	for strings.Contains(name, "//") {
		name = strings.ReplaceAll(name, "//", "/")
	}
	if len(name) > 1 {
		name = strings.TrimSuffix(name, "/")
	}
	return name
}

// absolute is File.getAbsolutePath, which leaves dots in a path.
func absolute(name string) string {
	if filepath.IsAbs(name) {
		return name
	}
	dir, err := os.Getwd()
	if err != nil {
		return name
	}
	return strings.TrimSuffix(dir, "/") + "/" + name
}
