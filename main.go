// Command ottla is a broker that speaks Kafka's protocol: `ottla`, or `go run .`, starts one.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"ottla/broker"
	"ottla/broker/config"
	"ottla/compat"
	"ottla/compat/cli"

	"github.com/spf13/cobra"
)

// version is set when a release is built: -ldflags "-X main.version=1.2.3".
var version = "dev"

// start is as early as the program can read a clock.
var start = time.Now()

func main() {
	cmd := command(os.Stdout, os.Stderr)
	if err := cmd.Execute(); err != nil {
		fmt.Fprintln(os.Stderr, "ottla:", err)
		os.Exit(1)
	}
}

// command is the whole command line. First words that are the names of Kafka's tools (topics,
// configs, ...) are not used for anything else.
func command(out, errOut io.Writer) *cobra.Command {
	root := serveCommand("ottla", out, errOut)
	root.Short = "A broker that unmodified Kafka clients use"
	root.Long = "ottla is a broker that unmodified Kafka clients use. Without a command it starts one."
	root.AddCommand(serveCommand("serve", out, errOut), devClusterCommand(out, errOut), versionCommand(), settingsCommand(), apisCommand())
	root.AddCommand(cli.Registry(), cli.Dump(), cli.Check())
	root.SetOut(out)
	root.SetErr(errOut)
	root.SilenceErrors, root.SilenceUsage = true, true
	return root
}

// serveOptions are the flags of a broker.
type serveOptions struct {
	config, dataDir, listen, http string
	set                           []string
	inMemory                      bool
	logFormat, logLevel           string
}

func serveCommand(use string, out, errOut io.Writer) *cobra.Command {
	var o serveOptions
	cmd := &cobra.Command{
		Use:   use,
		Short: "Start a broker",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			return serve(ctx, &o, out, errOut)
		},
	}
	if use == "ottla" {
		cmd.Args = nil // cobra's own check names the unknown command
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&o.config, "config", "", "settings in the form of Kafka's server.properties, from this `file`")
	f.StringArrayVar(&o.set, "set", nil, "set one setting, over the file: `name=value` (may be repeated)")
	f.StringVar(&o.dataDir, "data-dir", "", "keep data in this `directory` (the setting log.dirs; ./ottla-data)")
	f.StringVar(&o.listen, "listen", "", "listen on this `address`: host:port, or a list as the setting listeners takes it (localhost:9092)")
	f.BoolVar(&o.inMemory, "in-memory", false, "keep everything in memory; it is gone when the broker stops")
	f.StringVar(&o.http, "http", "localhost:9644", "`address` of /metrics, /healthz and /readyz; empty for none")
	f.StringVar(&o.logFormat, "log-format", "text", "form of the log: `text` or json")
	f.StringVar(&o.logLevel, "log-level", "info", "least `level` that is logged: debug, info, warn or error")
	return cmd
}

// settings are the static settings: the file's, those of --set over them, those of the other
// flags over these.
func (o *serveOptions) settings() (map[string]string, error) {
	settings := map[string]string{}
	if o.config != "" {
		if err := config.ReadProperties(settings, o.config); err != nil {
			return nil, err
		}
	}
	for _, s := range o.set {
		name, value, err := config.ParseAssignment(s)
		if err != nil {
			return nil, fmt.Errorf("--set: %w", err)
		}
		settings[name] = value
	}
	if o.dataDir != "" && o.inMemory {
		return nil, fmt.Errorf("--data-dir %s: allowed is no directory beside --in-memory, which keeps nothing on disk", o.dataDir)
	}
	if o.dataDir != "" {
		settings["log.dirs"] = o.dataDir
	}
	if o.listen != "" {
		listen := o.listen
		if !strings.Contains(listen, "://") {
			listen = "PLAINTEXT://" + listen
		}
		settings["listeners"] = listen
	}
	return settings, nil
}

// logger makes the log on w. The level can be changed while the broker runs.
func (o *serveOptions) logger(w io.Writer) (*slog.Logger, *slog.LevelVar, error) {
	level := new(slog.LevelVar)
	if err := level.UnmarshalText([]byte(o.logLevel)); err != nil {
		return nil, nil, fmt.Errorf("--log-level %s: allowed are debug, info, warn and error", o.logLevel)
	}
	options := &slog.HandlerOptions{Level: level}
	switch o.logFormat {
	case "text":
		return slog.New(slog.NewTextHandler(w, options)), level, nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, options)), level, nil
	}
	return nil, nil, fmt.Errorf("--log-format %s: allowed are text and json", o.logFormat)
}

// checkHTTP refuses what cannot be an address; one that is taken is the broker's concern.
func (o *serveOptions) checkHTTP() error {
	if o.http == "" {
		return nil
	}
	_, port, err := net.SplitHostPort(o.http)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		return fmt.Errorf("--http %s: allowed are host:port, with a port from 0 to 65535, and nothing at all", o.http)
	}
	return nil
}

// serve runs a broker until ctx ends.
func serve(ctx context.Context, o *serveOptions, out, errOut io.Writer) error {
	settings, err := o.settings()
	if err != nil {
		return err
	}
	logger, level, err := o.logger(errOut)
	if err != nil {
		return err
	}
	if err := o.checkHTTP(); err != nil {
		return err
	}
	b, err := broker.New(broker.Options{
		Settings: settings,
		InMemory: o.inMemory,
		HTTP:     o.http,
		Logger:   logger,
		Level:    level,
		Version:  version,
		Ready: func(r broker.Ready) {
			took, where := time.Since(start), ""
			if r.DataDir != "" {
				where = "data in " + r.DataDir + ", "
			}
			fmt.Fprintf(out, "ottla is ready on %s (%s%s mode, %d ms)\n", strings.Join(r.Addresses, ", "), where, r.Mode, took.Milliseconds())
		},
	})
	if err != nil {
		return err
	}
	if err := b.Run(ctx); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		Run: func(cmd *cobra.Command, _ []string) {
			fmt.Fprintf(cmd.OutOrStdout(), "ottla %s (%s %s/%s)\n", version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
		},
	}
}

// jsonSetting is a setting in `ottla settings --json`.
type jsonSetting struct {
	Name         string `json:"name"`
	Scope        string `json:"scope"`
	Type         string `json:"type"`
	Default      string `json:"default"`
	KafkaDefault string `json:"kafkaDefault,omitempty"` // where it differs
	Valid        string `json:"valid,omitempty"`
	Update       string `json:"update"`
	Effect       string `json:"effect"`
	Why          string `json:"why,omitempty"`
	DefaultFrom  string `json:"defaultFrom,omitempty"`
	Synonyms     string `json:"synonyms,omitempty"`
	Doc          string `json:"doc"`
}

func settingsCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "settings [word...]",
		Short: "Print the table of settings, or the rows whose names have one of the words",
		RunE: func(cmd *cobra.Command, words []string) error {
			var rows []config.TableRow
			for _, r := range config.Table() {
				if len(words) == 0 || containsAny(r.Name, words) {
					rows = append(rows, r)
				}
			}
			if asJSON {
				return printSettingsJSON(cmd.OutOrStdout(), rows)
			}
			w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
			fmt.Fprintln(w, "NAME\tSCOPE\tTYPE\tDEFAULT\tALLOWED\tUPDATE\tEFFECT\tMEANING")
			for _, r := range rows {
				meaning := r.Doc
				if r.Why != "" {
					meaning += " (" + string(r.Effect()) + ": " + r.Why + ")"
				}
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", r.Name, r.Scope, strings.ToLower(r.Type.String()), r.Own, r.Valid, r.Mode, r.Effect(), meaning)
			}
			return w.Flush()
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func containsAny(s string, words []string) bool {
	for _, w := range words {
		if strings.Contains(s, w) {
			return true
		}
	}
	return false
}

func printSettingsJSON(w io.Writer, rows []config.TableRow) error {
	list := make([]jsonSetting, 0, len(rows))
	for _, r := range rows {
		s := jsonSetting{Name: r.Name, Scope: r.Scope, Type: strings.ToLower(r.Type.String()), Default: r.Own, Valid: r.Valid,
			Update: r.Mode.String(), Effect: string(r.Effect()), Why: r.Why, DefaultFrom: r.From, Synonyms: r.Synonyms, Doc: r.Doc}
		if r.Own != r.Default {
			s.KafkaDefault = r.Default
		}
		list = append(list, s)
	}
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(list)
}

func apisCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "apis",
		Short: "Print the table of APIs",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
			fmt.Fprintln(w, "KEY\tNAME\tVERSIONS\tSTATE\tWHY")
			for _, a := range compat.APIs {
				fmt.Fprintf(w, "%d\t%s\t%d-%d\t%s\t%s\n", a.Key, a.Name, a.Min, a.Max, a.State, a.Why)
			}
			return w.Flush()
		},
	}
}
