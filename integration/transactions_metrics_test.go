package integration

import (
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// coordinatorMetrics are the names of Kafka's beans of groups, transactions and producer ids that mean something for
// one broker, as the JMX exporter and Strimzi's reporter write them.
var coordinatorMetrics = strings.Fields(`
	kafka_server_group_coordinator_metrics_group_count kafka_server_group_coordinator_metrics_classic_group_count
	kafka_server_group_coordinator_metrics_consumer_group_count kafka_server_group_coordinator_metrics_consumer_group_rebalance_count
	kafka_server_group_coordinator_metrics_group_completed_rebalance_count kafka_server_group_coordinator_metrics_offset_commit_count
	kafka_server_group_coordinator_metrics_offset_expiration_count kafka_server_group_coordinator_metrics_offset_deletion_count
	kafka_server_group_coordinator_metrics_num_partitions kafka_server_group_coordinator_metrics_event_queue_size
	kafka_server_group_coordinator_metrics_partition_load_time_max kafka_server_group_coordinator_metrics_partition_load_time_avg
	kafka_server_transaction_coordinator_metrics_partition_load_time_max kafka_server_transaction_coordinator_metrics_partition_load_time_avg
	kafka_server_transaction_coordinator_metrics_num_partitions
	kafka_server_transaction_coordinator_metrics_commit_count kafka_server_transaction_coordinator_metrics_abort_count
	kafka_server_transaction_coordinator_metrics_timeout_count kafka_server_transaction_coordinator_metrics_expired_id_count
	kafka_coordinator_transaction_transactionmarkerchannelmanager_unknowndestinationqueuesize
	kafka_coordinator_transaction_transactionmarkerchannelmanager_logappendretryqueuesize
	kafka_server_addpartitionstotxnmanager_verificationtimems
	kafka_server_addpartitionstotxnmanager_verificationfailurerate_total kafka_server_addpartitionstotxnmanager_verificationfailurerate_count
	kafka_server_replicamanager_produceridcount kafka_server_replicamanager_partitionswithlatetransactionscount`)

// TestCoordinatorMetrics: the names are there, and say what groups and transactions did.
func TestCoordinatorMetrics(t *testing.T) {
	t.Parallel()
	w := watch(t, nil, "offsets.topic.num.partitions=2", "transaction.state.log.num.partitions=3", "group.initial.rebalance.delay.ms=0")
	ctx := t.Context()
	addr := w.addr
	adm := kadm.NewClient(kgoDial(t, kgo.SeedBrokers(addr)))
	if _, err := adm.CreateTopic(ctx, 2, 1, nil, "t"); err != nil {
		t.Fatal(err)
	}
	begin := func(id string, timeout time.Duration) *kgo.Client {
		cl := kgoDial(t, kgo.SeedBrokers(addr), kgo.TransactionalID(id), kgo.DefaultProduceTopic("t"), kgo.TransactionTimeout(timeout))
		if err := cl.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		if err := cl.ProduceSync(ctx, kgo.StringRecord("r")).FirstErr(); err != nil {
			t.Fatal(err)
		}
		return cl
	}
	for _, end := range []kgo.TransactionEndTry{kgo.TryCommit, kgo.TryAbort} {
		if err := begin("one", time.Minute).EndTransaction(ctx, end); err != nil {
			t.Fatal(err)
		}
	}
	begin("silent", 200*time.Millisecond)
	begin("open", time.Minute)
	at := kadm.Offsets{}
	at.AddOffset("t", 0, 1, -1)
	if _, err := adm.CommitOffsets(ctx, "simple", at); err != nil {
		t.Fatal(err)
	}
	member := kgoDial(t, kgo.SeedBrokers(addr), kgo.ConsumerGroup("g"), kgo.ConsumeTopics("t"), kgo.DisableAutoCommit())
	if fs := member.PollFetches(ctx); fs.Err() != nil {
		t.Fatal(fs.Err())
	}
	const group, txn = "kafka_server_group_coordinator_metrics_", "kafka_server_transaction_coordinator_metrics_"
	eventually(t, "what happened is counted", patience, func() bool {
		s := w.scrape(t)
		return s.value(txn+"commit_count") == 1 && s.value(txn+"abort_count") == 2 && s.value(txn+"timeout_count") == 1 &&
			s.value("kafka_coordinator_transaction_transactionmarkerchannelmanager_pending_transactions") == 0
	})
	s := w.scrape(t)
	for _, name := range coordinatorMetrics {
		if s[name] == nil {
			t.Errorf("%s is not there", name)
		}
	}
	for what, x := range map[string]struct{ is, want float64 }{
		"group partitions":            {s.value(group+"num_partitions", "state=active"), 2},
		"group partitions that load":  {s.value(group+"num_partitions", "state=loading"), 0},
		"transaction partitions":      {s.value(txn+"num_partitions", "state=active"), 3},
		"classic groups":              {s.value(group+"group_count", "protocol=classic"), 2},
		"stable ones":                 {s.value(group+"classic_group_count", "state=Stable"), 1},
		"empty ones":                  {s.value(group+"classic_group_count", "state=Empty"), 1},
		"commits":                     {s.value(group + "offset_commit_count"), 1},
		"partitions without a marker": {s.value("kafka_coordinator_transaction_transactionmarkerchannelmanager_unknowndestinationqueuesize"), 0},
		"partitions not confirmed":    {s.value("kafka_server_addpartitionstotxnmanager_verificationfailurerate_total"), 0},
		"late transactions":           {s.value("kafka_server_replicamanager_partitionswithlatetransactionscount"), 0},
	} {
		if x.is != x.want {
			t.Errorf("%s: %v, want %v", what, x.is, x.want)
		}
	}
	if n := s.value("kafka_server_addpartitionstotxnmanager_verificationtimems"); n < 4 {
		t.Errorf("%v times the coordinator was asked", n)
	}
	if n := s.value("kafka_server_replicamanager_produceridcount"); n < 3 {
		t.Errorf("%v producer ids are known", n)
	}
}
