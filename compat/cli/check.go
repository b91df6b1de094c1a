package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"ottla/log"
	"ottla/log/vfs"

	"github.com/spf13/cobra"
)

// checkOptions are the flags of Check.
type checkOptions struct {
	repair, yes bool
	topics      []string
}

// Check is `ottla check`: it reads everything in log directories, and says what is wrong with it. With
// --repair it says what it would do about that, asks, and does it. The command fails, and its exit
// code is 1, if something is wrong that a start does not put right by itself, or was and could not be
// repaired.
func Check() *cobra.Command {
	var o checkOptions
	cmd := &cobra.Command{
		Use:   "check directory...",
		Short: "Read all logs of log directories, say what is damaged, and repair it",
		Long: `check reads all logs of the log directories, every batch with its checksum, and says what is damaged:
the file, the byte position, and what a repair would do. It changes nothing. Beside a broker that runs it
may find what is just being written.

The directories of log.dirs are best named together: a partition may have moved from one to another.

With --repair, for which the broker has to be stopped, it asks and then does what it said. What it cuts
out of a log stays beside it in a file *.cut. The next start reads again all of a log that was repaired.

The exit code is 1 if something is wrong that a start does not put right by itself.`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, dirs []string) error {
			ctx := cmd.Context()
			if ctx == nil {
				ctx = context.Background()
			}
			ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			c := &check{checkOptions: o, ctx: ctx, fs: vfs.OS(), in: bufio.NewReader(cmd.InOrStdin()), out: cmd.OutOrStdout(), errOut: cmd.ErrOrStderr()}
			return c.run(dirs)
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.BoolVar(&o.repair, "repair", false, "repair what is wrong, after asking; the broker must not run")
	f.BoolVar(&o.yes, "yes", false, "with --repair: do not ask")
	f.StringArrayVar(&o.topics, "topic", nil, "check only this `topic` (may be repeated)")
	return cmd
}

type check struct {
	checkOptions
	ctx    context.Context
	fs     vfs.FS
	in     *bufio.Reader
	out    io.Writer
	errOut io.Writer
}

func (c *check) run(dirs []string) error {
	if c.yes && !c.repair {
		return errors.New("--yes is for --repair")
	}
	wrong := 0
	for _, dir := range dirs {
		n, err := c.directory(dir, dirs)
		if err != nil {
			return fmt.Errorf("check %s: %w", dir, err)
		}
		wrong += n
	}
	switch wrong {
	case 0:
		return nil
	case 1:
		return errors.New("1 thing is wrong")
	}
	return fmt.Errorf("%d things are wrong", wrong)
}

// directory checks one directory and returns how much is wrong with it in the end.
func (c *check) directory(dir string, all []string) (wrong int, err error) {
	if c.repair {
		lock, err := log.LockDir(c.fs, dir)
		if errors.Is(err, log.ErrLocked) {
			return 0, fmt.Errorf("%w; stop the broker before a repair", err)
		}
		if err != nil {
			return 0, err
		}
		defer lock.Close()
	} else if used, err := log.InUse(c.fs, dir); err != nil {
		return 0, err
	} else if used {
		fmt.Fprintf(c.out, "%s is in use by a broker: what is found may be just what is being written\n", dir)
	}
	r, err := c.look(dir, all)
	if err != nil {
		return 0, err
	}
	c.tell(r)
	if wrong = r.Wrong(); !c.repair || wrong == 0 {
		return wrong, nil
	}
	if r.Repairable() == 0 {
		fmt.Fprintln(c.out, "there is nothing that a repair could do about it: restore the files")
		return wrong, nil
	}
	if !c.yes && !c.agreed(r) {
		fmt.Fprintln(c.out, "nothing was changed")
		return wrong, nil
	}
	if err := r.Repair(c.ctx, func(step string) { fmt.Fprintln(c.out, step) }); err != nil {
		return 0, fmt.Errorf("repair: %w", err)
	}
	if r, err = c.look(dir, all); err != nil {
		return 0, err
	}
	fmt.Fprintln(c.out, "after the repair:")
	c.tell(r)
	return r.Wrong(), nil
}

func (c *check) look(dir string, all []string) (*log.CheckReport, error) {
	return log.Check(c.ctx, log.CheckOptions{FS: c.fs, Dir: dir, Beside: all, Topics: c.topics, Progress: c.progress()})
}

// progress shows where the check is, on a terminal.
func (c *check) progress() func(string, int, int) {
	f, ok := c.errOut.(*os.File)
	if !ok {
		return nil
	}
	if info, err := f.Stat(); err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return nil
	}
	return func(partition string, number, of int) {
		fmt.Fprintf(f, "\r\x1b[K%d of %d: %s", number, of, partition)
		if number == of {
			fmt.Fprint(f, "\r\x1b[K")
		}
	}
}

// tell prints what was found.
func (c *check) tell(r *log.CheckReport) {
	for _, f := range r.Findings {
		at := f.File
		if f.Position >= 0 {
			at = fmt.Sprintf("%s at byte %d", f.File, f.Position)
		}
		kind := "wrong"
		if f.Harmless {
			kind = "note"
		}
		fmt.Fprintf(c.out, "%s: %s: %s\n", kind, at, f.What)
		if f.Repair != "" {
			fmt.Fprintf(c.out, "    repair: %s\n", f.Repair)
		}
	}
	how := "not stopped cleanly"
	if r.Clean {
		how = "stopped cleanly"
	}
	fmt.Fprintf(c.out, "%s (%s): %d partitions, %d segments, %d batches, %d bytes; %d wrong, %d notes\n",
		r.Dir, how, r.Partitions, r.Segments, r.Batches, r.Bytes, r.Wrong(), len(r.Findings)-r.Wrong())
}

// agreed asks whether to repair.
func (c *check) agreed(r *log.CheckReport) bool {
	fmt.Fprintf(c.out, "repair %d of these things, as said above? [y/N] ", r.Repairable())
	line, _ := c.in.ReadString('\n')
	switch strings.ToLower(strings.TrimSpace(line)) {
	case "y", "yes":
		return true
	}
	return false
}
