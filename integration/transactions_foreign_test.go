package integration

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"ottla/protocol/record"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// cutBatches leaves the first n batches of a partition's log, as a crash does that came before the next one, and
// forgets what was known of a clean stop. It returns how many there were.
func cutBatches(t *testing.T, dir, partition string, n int) (had int) {
	t.Helper()
	file := filepath.Join(dir, partition, "00000000000000000000.log")
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	keep := len(data)
	for rest := data; len(rest) > 0; had++ {
		if had == n {
			keep = len(data) - len(rest)
		}
		if _, rest, err = record.Split(rest); err != nil {
			break // what was set aside for more
		}
	}
	if err := os.Truncate(file, int64(keep)); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{".kafka_cleanshutdown", "recovery-point-offset-checkpoint", "replication-offset-checkpoint", "cleaner-offset-checkpoint",
		partition + "/00000000000000000000.index", partition + "/00000000000000000000.timeindex"} {
		if err := os.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
	}
	return had
}

// TestForeignTransactionsInEveryState: a Kafka has died after each of the records of its __transaction_state, so in
// each state of its transactions. They are finished, and their ids go on.
func TestForeignTransactionsInEveryState(t *testing.T) {
	t.Parallel()
	for _, name := range []string{kraft44, zk39} {
		states := map[string]int{}
		for n, had := 1, 2; n <= had; n++ {
			dir := foreign(t, name)
			had = cutBatches(t, dir, "__transaction_state-1", n)
			if had < 8 {
				t.Fatalf("%s has %d records", name, had)
			}
			what := fmt.Sprintf("%s, after %d", name, n)
			h := reopen(t, dir, nil)
			func() {
				defer h.shut()
				adm := kadm.NewClient(kgoDial(t, kgo.SeedBrokers(h.addr)))
				found, err := adm.DescribeTransactions(t.Context())
				if err != nil {
					t.Fatal(what, err)
				}
				for _, x := range found {
					states[x.State]++
				}
				for _, id := range []string{"tx-one", "tx-two"} {
					req := kmsg.NewPtrInitProducerIDRequest()
					req.TransactionalID, req.TransactionTimeoutMillis = &id, 60000
					var resp *kmsg.InitProducerIDResponse
					eventually(t, what+": "+id, patience, func() bool {
						resp = ask[*kmsg.InitProducerIDResponse](h.wire, req, 4)
						return resp.ErrorCode == 0
					})
					for _, x := range found {
						if x.TxnID == id && x.ProducerID == resp.ProducerID && x.ProducerEpoch >= resp.ProducerEpoch {
							t.Errorf("%s: %s has epoch %d, had %d", what, id, resp.ProducerEpoch, x.ProducerEpoch)
						}
					}
				}
				ends, err := adm.ListEndOffsets(t.Context(), "txn")
				if err != nil {
					t.Fatal(what, err)
				}
				stable, err := adm.ListCommittedOffsets(t.Context(), "txn")
				if err != nil {
					t.Fatal(what, err)
				}
				ends.Each(func(o kadm.ListedOffset) {
					if s, _ := stable.Lookup(o.Topic, o.Partition); s.Offset != o.Offset {
						t.Errorf("%s: %s-%d is decided up to %d of %d", what, o.Topic, o.Partition, s.Offset, o.Offset)
					}
				})
			}()
		}
		// An open one is as old as the fixture, so its time is up as soon as it is read.
		for _, s := range []string{"Empty", "CompleteCommit", "CompleteAbort"} {
			if states[s] == 0 {
				t.Errorf("%s: no transaction was %s", name, s)
			}
		}
	}
}
