//go:build clients

package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"
)

// administers asks Kafka's admin client for all that it can do with transactions; what is wanted is what Kafka 4.4.0 answers.
func (s *theatre) administers(t *testing.T, release string) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	topic := s.mark + "-admin"
	if _, err := s.adm.CreateTopic(ctx, 2, 1, nil, topic); err != nil {
		t.Fatal(err)
	}
	// call runs a command whose answer must be want, as JSON;
	var open int64
	call := func(want, op string, a args) {
		t.Helper()
		var raw json.RawMessage
		if err := s.c.do(ctx, op, a, &raw); err != nil {
			t.Fatal(err)
		}
		if string(raw) != want {
			t.Errorf("%s %v: %s, want %s", op, a, raw, want)
		}
	}
	produce := func(name string, steps ...string) {
		t.Helper()
		call(`"ok"`, "open", args{"name": topic + name, "producer": topic + "-" + name, "settings": args{"transaction.timeout.ms": 30000}})
		for _, op := range append([]string{"init", "begin", "send"}, steps...) {
			call(`"ok"`, op, args{"name": topic + name, "topic": topic, "partition": 0, "value": name})
		}
	}
	id := func(name string) string { return topic + "-" + name }
	produce("committed", "commit")
	produce("aborted", "abort")
	produce("open")

	// listed are the transactional ids of this test with their states: each list is narrowed to them by their producer ids.
	ids := []int64{}
	for _, name := range []string{"committed", "aborted", "open"} {
		var d struct{ ID int64 }
		if err := s.c.do(ctx, "describe", args{"producer": id(name)}, &d); err != nil {
			t.Fatal(err)
		}
		ids, open = append(ids, d.ID), d.ID
	}
	listed := func(more args, names ...string) {
		t.Helper()
		a := args{"ids": ids}
		for k, v := range more {
			a[k] = v
		}
		want := map[string]string{"aborted": "CompleteAbort", "committed": "CompleteCommit", "open": "Ongoing"}
		all := map[string]string{}
		for _, n := range names {
			all[id(n)] = want[n]
		}
		j, _ := json.Marshal(all) // by name
		call(string(j), "list", a)
	}
	listed(nil, "aborted", "committed", "open")
	listed(args{"states": []string{"Ongoing"}}, "open")
	listed(args{"states": []string{"Ongoing", "CompleteAbort"}}, "aborted", "open")
	listed(args{"states": []string{"PrepareAbort", "PrepareCommit", "PrepareEpochFence", "Empty", "Dead"}})
	listed(args{"ids": []int64{open, 1 << 40}}, "open")
	listed(args{"duration": 0}, "aborted", "committed", "open")
	listed(args{"duration": 3_600_000})
	if release >= "4.1" {
		listed(args{"pattern": topic + "-.*ed"}, "aborted", "committed")
		listed(args{"pattern": topic})
		listed(args{"pattern": ""}, "aborted", "committed", "open")
		call(`{"thrown":"InvalidRegularExpression"}`, "list", args{"pattern": "("})
	}

	partition := fmt.Sprintf("%q", topic+"-0")
	call(fmt.Sprintf(`{"state":"Ongoing","id":%d,"epoch":0,"timeout":30000,"started":true,"partitions":[%s]}`, open, partition), "describe", args{"producer": id("open")})
	epoch, sequence := 1, -1 // transaction.version 2 raises the epoch with the end of each transaction
	if release < "4" {
		epoch, sequence = 0, 0
	}
	call(fmt.Sprintf(`{"state":"CompleteCommit","id":%d,"epoch":%d,"timeout":30000,"started":true,"partitions":[]}`, ids[0], epoch), "describe", args{"producer": id("committed")})
	call(`{"thrown":"TransactionalIdNotFoundException"}`, "describe", args{"producer": id("nobody")})
	call(`[]`, "producers", args{"topic": topic, "partition": 1})
	call(fmt.Sprintf(`[{"id":%d,"epoch":%d,"sequence":%d,"coordinator":0,"start":-1},{"id":%d,"epoch":%[2]d,"sequence":%[3]d,"coordinator":0,"start":-1},{"id":%[5]d,"epoch":0,"sequence":0,"coordinator":-1,"start":4}]`,
		ids[0], epoch, sequence, ids[1], open), "producers", args{"topic": topic, "partition": 0})

	call(`"ok"`, "fence", args{"producer": id("open")})
	call(`"ProducerFencedException"`, "commit", args{"name": topic + "open"})
	call(`"ok"`, "fence", args{"producer": id("new")}) // makes it
	var made struct{ ID int64 }
	if err := s.c.do(ctx, "describe", args{"producer": id("new")}, &made); err != nil {
		t.Fatal(err)
	}
	call(fmt.Sprintf(`{"state":"Empty","id":%d,"epoch":0,"timeout":30000,"started":false,"partitions":[]}`, made.ID), "describe", args{"producer": id("new")})
	if release >= "4" {
		produce("ended")
		call(`"ok"`, "terminate", args{"producer": id("ended")})
		call(`"ProducerFencedException"`, "commit", args{"name": topic + "ended"})
	}

	// A partition's leader ends any transaction that it is told to end.
	produce("cut")
	var cut struct{ ID int64 }
	if err := s.c.do(ctx, "describe", args{"producer": id("cut")}, &cut); err != nil {
		t.Fatal(err)
	}
	end := args{"topic": topic, "partition": 0, "pid": cut.ID, "epoch": 0, "coordinator": 100}
	if release >= "4" { // whose producers have had an older epoch
		call(`"InvalidProducerEpochException"`, "abort_partition", args{"topic": topic, "partition": 0, "pid": ids[0], "epoch": 0, "coordinator": 100})
	}
	call(`"ok"`, "abort_partition", end)
	call(`"TransactionCoordinatorFencedException"`, "abort_partition", args{"topic": topic, "partition": 0, "pid": cut.ID, "epoch": 0, "coordinator": 5})
	call(`"ok"`, "commit", args{"name": topic + "cut"})
	for _, name := range []string{"committed", "aborted", "open", "cut"} {
		call(`"ok"`, "close", args{"name": topic + name})
	}
}
