package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"ottla/broker/registry"
	"ottla/compat"
	"ottla/log"
	"ottla/log/vfs"

	"github.com/magiconair/properties"
	"github.com/spf13/cobra"
)

// registryOptions are the flags of both commands.
type registryOptions struct {
	dataDir, zookeeper, file string
	timeout                  time.Duration
	dryRun, force, merge     bool
}

// Registry is `ottla registry`: it carries what a cluster agrees on, topics, settings, users and
// access rules, between the registry in a data directory, a ZooKeeper, and a file.
func Registry() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "registry",
		Short: "Carry topics, settings and users to a ZooKeeper, to a file, and back",
		Long: `registry carries what a cluster agrees on, topics, settings, users and access rules, between the registry in a
data directory, a ZooKeeper with Kafka's tree, and a file of JSON with one node a line.

With the tree in a ZooKeeper a Kafka 3.9 goes on with the data directory: stop ottla, export, start Kafka with
the same broker.id and log.dirs. The way back is import.`,
	}
	cmd.AddCommand(registryCommand("export"), registryCommand("import"))
	return cmd
}

func registryCommand(use string) *cobra.Command {
	var o registryOptions
	cmd := &cobra.Command{Use: use, Args: cobra.NoArgs}
	file := "write to this `file` where no ZooKeeper is named beside the directory; - is the standard output"
	if use == "export" {
		cmd.Short = "Carry a registry to a ZooKeeper or to a file"
		cmd.Long = `export carries the registry of --data-dir to --zookeeper; with one of them alone, that one to --file.`
	} else {
		cmd.Short = "Carry a ZooKeeper's tree or a file into a registry"
		cmd.Long = `import carries the tree of --zookeeper into the registry of --data-dir; with one of them alone, --file into that one.`
		file = "read from this `file` where no ZooKeeper is named beside the directory; - is the standard input"
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c := &carrier{o: o, fs: vfs.OS(), in: cmd.InOrStdin(), out: cmd.OutOrStdout(), say: cmd.ErrOrStderr()}
		if err := c.run(use == "export"); err != nil {
			return fmt.Errorf("registry %s: %w", use, err)
		}
		return nil
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&o.dataDir, "data-dir", "", "the registry in this `directory`, or this registry file itself")
	f.StringVar(&o.zookeeper, "zookeeper", "", "the tree in this ZooKeeper: `host:port`[,host:port][/chroot]")
	f.StringVar(&o.file, "file", "-", file)
	f.DurationVar(&o.timeout, "timeout", 10*time.Second, "how long to wait for a ZooKeeper")
	f.BoolVar(&o.dryRun, "dry-run", false, "say what would be written, and write nothing")
	f.BoolVar(&o.merge, "merge", false, "write into a tree that has topics: what it has stays as it is")
	f.BoolVar(&o.force, "force", false, "write over a tree that has topics or is of another cluster: what it has beyond is removed")
	return cmd
}

// carrier is one run.
type carrier struct {
	o   registryOptions
	fs  vfs.FS
	in  io.Reader
	out io.Writer
	say io.Writer // the summary; the tree may go to out
}

// end is one end of the way. A file has no tree.
type end struct {
	name      string
	tree      registry.Tree
	zookeeper bool
	locks     []io.Closer
	meta      *properties.Properties // of a data directory: its meta.properties; nil: none
	metaPath  string
}

func (e *end) close() (err error) {
	if e.tree != nil {
		err = e.tree.Close()
	}
	for _, l := range e.locks {
		err = errors.Join(err, l.Close())
	}
	return err
}

func (c *carrier) run(export bool) (err error) {
	if c.o.dataDir == "" && c.o.zookeeper == "" {
		return errors.New("name a --data-dir, a --zookeeper, or both")
	}
	if c.o.force && c.o.merge {
		return errors.New("--force and --merge exclude each other")
	}
	both := c.o.dataDir != "" && c.o.zookeeper != ""
	var from, to *end
	var source, target func(write bool) (*end, error) // nil: the file
	switch {
	case both && export:
		source, target = c.openDir, c.openZooKeeper
	case both:
		source, target = c.openZooKeeper, c.openDir
	case c.o.dataDir != "":
		source = c.openDir
	default:
		source = c.openZooKeeper
	}
	if !both && !export {
		source, target = nil, source
	}
	for _, x := range []struct {
		to    **end
		open  func(bool) (*end, error)
		write bool
	}{{&from, source, false}, {&to, target, true}} {
		*x.to = &end{name: c.fileName(x.write)}
		if x.open == nil {
			continue
		}
		e, err := x.open(x.write && !c.o.dryRun)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, e.close()) }()
		*x.to = e
	}
	return c.carry(from, to)
}

func (c *carrier) fileName(write bool) string {
	switch {
	case c.o.file != "-":
		return c.o.file
	case write:
		return "standard output"
	}
	return "standard input"
}

// openDir opens a directory's registry. Nobody may have it open: it is one broker's.
func (c *carrier) openDir(write bool) (*end, error) {
	dir, file := c.o.dataDir, filepath.Join(c.o.dataDir, registry.FileName)
	info, err := os.Stat(dir)
	switch {
	case err == nil && !info.IsDir():
		dir, file = filepath.Dir(dir), dir
	case errors.Is(err, os.ErrNotExist) && write:
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, err
		}
	case err != nil:
		return nil, err
	}
	e := &end{name: file, metaPath: filepath.Join(dir, "meta.properties")}
	if data, err := os.ReadFile(e.metaPath); err == nil {
		loader := properties.Loader{Encoding: properties.ISO_8859_1, DisableExpansion: true}
		if e.meta, err = loader.LoadBytes(data); err != nil {
			return nil, fmt.Errorf("%s: %w", e.metaPath, err)
		}
		lock, err := log.LockDir(c.fs, dir)
		if errors.Is(err, log.ErrLocked) {
			return nil, fmt.Errorf("%w; stop the broker first", err)
		} else if err != nil {
			return nil, err
		}
		e.locks = append(e.locks, lock)
	}
	if _, err := os.Stat(file); errors.Is(err, os.ErrNotExist) && !write {
		if !c.o.dryRun {
			e.close()
			return nil, fmt.Errorf("there is no registry %s", file)
		}
		e.tree = registry.OpenMemory() // a dry run makes no file
		return e, nil
	}
	if e.tree, err = registry.OpenFile(file); err != nil {
		e.close()
		if errors.Is(err, registry.ErrInUse) {
			err = fmt.Errorf("%w; stop the broker first", err)
		}
		return nil, err
	}
	return e, nil
}

func (c *carrier) openZooKeeper(write bool) (*end, error) {
	tree, err := registry.OpenZooKeeper(registry.ZooKeeperOptions{
		Connect: c.o.zookeeper, Patience: c.o.timeout, MakeChroot: write,
	})
	if err != nil {
		return nil, err
	}
	return &end{name: c.o.zookeeper, tree: tree, zookeeper: true}, nil
}

// carry reads all of one end before it writes to the other.
func (c *carrier) carry(from, to *end) error {
	nodes, left, err := c.read(from)
	if err != nil {
		return err
	}
	has, err := contentsOf(nodes)
	if err != nil {
		return fmt.Errorf("%s: %w", from.name, err)
	}
	var notes []string
	if from.tree != nil && has.cluster == "" {
		return fmt.Errorf("%s has no %s: it is no tree of Kafka's", from.name, compat.PathClusterID)
	}
	if len(left) > 0 {
		notes = append(notes, "left out: "+strings.Join(left, ", "))
	}
	if i := slices.IndexFunc(nodes, func(n treeNode) bool { return n.path == compat.PathFeature }); i >= 0 {
		switch l := levels(nodes[i].data); {
		case to.zookeeper:
			// 3.9.1 makes the node itself, and ends where it has levels that it does not know.
			if l != "" {
				notes = append(notes, fmt.Sprintf("left out: the feature levels (%s), which a Kafka 3.9 does not know", l))
			}
			nodes = slices.Delete(nodes, i, i+1)
		case l == "" && to.tree != nil: // it is of a 3.9; here the broker's own levels count
			nodes = slices.Delete(nodes, i, i+1)
		}
	}
	for _, e := range []*end{from, to} {
		note, err := e.checkMeta(has.cluster)
		if err != nil {
			return err
		}
		if note != "" {
			notes = append(notes, note)
		}
	}
	did := "carried"
	if to.tree == nil {
		if c.o.dryRun {
			did = "would carry"
		} else if err := c.writeFile(nodes); err != nil {
			return err
		}
	} else {
		for _, n := range nodes {
			if err := checkNode(n); err != nil {
				return fmt.Errorf("%s: %s%w", from.name, n.from, err)
			}
		}
		p, err := c.plan(to, nodes, has)
		if err != nil {
			return err
		}
		if c.o.dryRun {
			did = "would carry"
		} else if err := p.do(to.tree); err != nil {
			if to.zookeeper { // an embedded registry undoes all
				err = fmt.Errorf("%w; the tree there is not complete: run it again with --force", err)
			}
			return fmt.Errorf("%s: %w", to.name, err)
		}
		what := fmt.Sprintf("%d made, %d changed, %d removed", p.made, p.changed, p.removed)
		if p.kept > 0 {
			what += fmt.Sprintf(", %d left as they are", p.kept)
		}
		notes = slices.Insert(notes, 0, what)
	}
	summary := fmt.Sprintf("%s %d nodes (cluster %s, %d topics with %d partitions, %d users) from %s to %s",
		did, len(nodes), cmp.Or(has.cluster, "not named"), has.topics, has.partitions, has.users, from.name, to.name)
	_, err = fmt.Fprintln(c.say, strings.Join(append([]string{summary}, notes...), "; "))
	return err
}

func (c *carrier) read(from *end) (nodes []treeNode, left []string, err error) {
	if from.tree != nil {
		nodes, left, err = readTree(from.tree)
	} else if c.o.file == "-" {
		nodes, err = readNodes(c.in)
	} else {
		var f *os.File
		if f, err = os.Open(c.o.file); err != nil {
			return nil, nil, err // it names the file
		}
		defer f.Close()
		nodes, err = readNodes(f)
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", from.name, err)
	}
	return nodes, left, err
}

// writeFile replaces the file when all of it is written.
func (c *carrier) writeFile(nodes []treeNode) error {
	if c.o.file == "-" {
		return writeNodes(c.out, nodes)
	}
	f, err := os.CreateTemp(filepath.Dir(c.o.file), filepath.Base(c.o.file)+".*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // nothing is there after the rename
	err = errors.Join(writeNodes(f, nodes), f.Chmod(0o600), f.Sync(), f.Close())
	if err != nil {
		return fmt.Errorf("%s: %w", c.o.file, err)
	}
	return os.Rename(f.Name(), c.o.file)
}

// checkMeta compares a directory's meta.properties with the tree: who opens it later does.
func (e *end) checkMeta(cluster string) (note string, err error) {
	if e.meta == nil {
		return "", nil
	}
	if id := e.meta.GetString("cluster.id", ""); id != "" && cluster != "" && id != cluster {
		return "", fmt.Errorf("%s is of cluster %s, the tree of %s: no broker would start with both", e.metaPath, id, cluster)
	}
	if v := e.meta.GetString("version", "0"); v != "0" {
		return fmt.Sprintf("%s has version %s (KRaft): a Kafka with ZooKeeper does not open the directory", e.metaPath, v), nil
	}
	return "", nil
}

// plan looks at the target, and refuses to write over what it was not told to.
func (c *carrier) plan(to *end, nodes []treeNode, source contents) (*plan, error) {
	before, _, err := readTree(to.tree)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", to.name, err)
	}
	has, err := contentsOf(before)
	if err != nil && !c.o.force {
		return nil, fmt.Errorf("%s: %w", to.name, err)
	}
	ids, _, err := to.tree.Children(compat.PathBrokerIDs, nil)
	if err == nil && len(ids) > 0 {
		return nil, fmt.Errorf("%s: brokers are registered (%s): stop them first", to.name, strings.Join(ids, ", "))
	} else if err != nil && !errors.Is(err, registry.ErrNoNode) {
		return nil, fmt.Errorf("%s: %w", to.name, err)
	}
	switch {
	case c.o.force:
	case has.cluster != "" && source.cluster != "" && has.cluster != source.cluster:
		return nil, fmt.Errorf("%s is of cluster %s, not of %s; --force writes over it", to.name, has.cluster, source.cluster)
	case has.topics > 0 && !c.o.merge:
		return nil, fmt.Errorf("%s has %d topics; --merge keeps them, --force replaces all", to.name, has.topics)
	}
	return planWrite(to.tree, nodes, before, c.o.merge, c.o.force)
}
