package api

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"ottla/broker/auth"
	"ottla/broker/metadata"
	"ottla/broker/quota"
	"ottla/compat"
	"ottla/protocol"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// bare is an API with no rooms below it, for the rows given.
func bare(rows ...route) *API {
	s := &API{
		Logger: slog.New(slog.DiscardHandler), Now: time.Now, BrokerID: 1, Meta: metadata.NewHolder(),
		Authorizer: auth.AllowAll{}, Quota: quota.Unlimited{}, Metrics: NewMetrics(nil),
	}
	s.bind(rows)
	return s
}

func peerOf(s *API) *Peer {
	return s.Open(protocol.Conn{Listener: "PLAINTEXT", Remote: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1}})
}

// frameOf is a request as a client sends it, without the length prefix.
func frameOf(req kmsg.Request, version int16, client string) []byte {
	req.SetVersion(version)
	return kmsg.NewRequestFormatter(kmsg.FormatterClientID(client)).AppendRequest(nil, req, 77)[4:]
}

// ask has a request handled and decodes the answer.
func ask[S kmsg.Response](t testing.TB, p *Peer, req kmsg.Request, version int16) S {
	t.Helper()
	reply, err := p.Handle(t.Context(), frameOf(req, version, "me"))
	if err != nil {
		t.Fatal(err)
	}
	if reply.Wait != nil {
		if reply.Answer, err = reply.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	resp := req.ResponseKind().(S)
	decode(t, reply, resp, resp.IsFlexible() && resp.Key() != compat.ApiVersions.Key)
	return resp
}

func decode(t testing.TB, reply protocol.Reply, resp kmsg.Response, tagged bool) {
	t.Helper()
	if reply.Answer == nil {
		t.Fatal("no answer")
	}
	var b []byte
	for _, p := range reply.Answer.Parts {
		b = append(b, p.Bytes...)
	}
	if int(binary.BigEndian.Uint32(b)) != len(b)-4 || binary.BigEndian.Uint32(b[4:]) != 77 {
		t.Fatalf("length or correlation id is wrong: %x", b)
	}
	b = b[8:]
	if tagged {
		b = b[1:]
	}
	if err := resp.ReadFrom(b); err != nil {
		t.Fatalf("%x: %v", b, err)
	}
}

// TestRoutesAreTheServedRows: what compat calls served has a handler, and nothing else has.
func TestRoutesAreTheServedRows(t *testing.T) {
	var served, routed []compat.API
	for _, a := range compat.APIs {
		if a.State == compat.Served {
			served = append(served, a)
		}
	}
	for _, r := range routes() {
		routed = append(routed, r.API)
		if key := r.make().Key(); key != r.Key {
			t.Errorf("%s has the handler of key %d", r.Name, key)
		}
		if m := r.make().MaxVersion(); m < r.Max {
			t.Errorf("%s: kmsg ends at version %d", r.Name, m)
		}
	}
	if !slices.Equal(served, routed) {
		t.Errorf("served are\n%v, routes has\n%v", served, routed)
	}
}

func TestApiVersions(t *testing.T) {
	s := bare(on(compat.ApiVersions, (*API).apiVersions, beforeLogin), metadataRoute(nil))
	s.Meta.Store(&metadata.Picture{ClusterID: "cluster"})
	for version := compat.ApiVersions.Min; version <= compat.ApiVersions.Max; version++ {
		req := kmsg.NewPtrApiVersionsRequest()
		req.ClientSoftwareName, req.ClientSoftwareVersion = "librdkafka", "2.3.0-RC1"
		p := peerOf(s)
		resp := ask[*kmsg.ApiVersionsResponse](t, p, req, version)
		if resp.ErrorCode != 0 || len(resp.ApiKeys) != 2 || resp.ApiKeys[0].ApiKey != 3 || resp.ApiKeys[0].MaxVersion != 13 || resp.ApiKeys[1].ApiKey != 18 {
			t.Errorf("version %d: %+v", version, resp)
		}
		if version >= 3 && (p.Software != "librdkafka" || p.SoftwareVersion != "2.3.0-RC1") {
			t.Errorf("version %d: software %q %q", version, p.Software, p.SoftwareVersion)
		}
	}
	for _, c := range []struct{ name, version string }{{"", "1"}, {"a", ""}, {"-a", "1"}, {"a.", "1"}, {"a", "1 2"}, {"ä", "1"}} {
		req := kmsg.NewPtrApiVersionsRequest()
		req.ClientSoftwareName, req.ClientSoftwareVersion = c.name, c.version
		if resp := ask[*kmsg.ApiVersionsResponse](t, peerOf(s), req, 3); resp.ErrorCode != kerr.InvalidRequest.Code {
			t.Errorf("%q %q: %d", c.name, c.version, resp.ErrorCode)
		}
	}
	for _, c := range []struct {
		cluster *string
		node    int32
		want    int16
	}{
		{nil, -1, 0}, {kmsg.StringPtr("cluster"), 1, 0},
		{kmsg.StringPtr("other"), 1, 129}, {kmsg.StringPtr("cluster"), 2, 129},
		{nil, 1, 42}, {kmsg.StringPtr("cluster"), -1, 42},
	} {
		req := kmsg.NewPtrApiVersionsRequest()
		req.ClientSoftwareName, req.ClientSoftwareVersion, req.ClusterID, req.NodeID = "a", "1", c.cluster, c.node
		if resp := ask[*kmsg.ApiVersionsResponse](t, peerOf(s), req, 5); resp.ErrorCode != c.want {
			t.Errorf("%v: %d", c, resp.ErrorCode)
		}
	}
}

// TestApiVersionsOfTheFuture (enc-1): any version is answered by its header alone, in the form
// of version 0, and the connection goes on.
func TestApiVersionsOfTheFuture(t *testing.T) {
	s := bare(on(compat.ApiVersions, (*API).apiVersions, beforeLogin))
	p := peerOf(s)
	for _, version := range []int16{6, 99, 32767, -1} {
		frame := []byte("\x00\x12\x00\x00\x00\x00\x00\x4d\x00\x02me\x00\xff\xff\xff\xff no body that anybody knows")
		binary.BigEndian.PutUint16(frame[2:], uint16(version))
		reply, err := p.Handle(t.Context(), frame)
		if err != nil {
			t.Fatal(err)
		}
		resp := kmsg.NewPtrApiVersionsResponse()
		decode(t, reply, resp, false)
		if resp.ErrorCode != 35 || len(resp.ApiKeys) != 1 || resp.ApiKeys[0].ApiKey != 18 || resp.ApiKeys[0].MaxVersion != 5 {
			t.Errorf("version %d: %+v", version, resp)
		}
	}
	if resp := ask[*kmsg.ApiVersionsResponse](t, p, kmsg.NewPtrApiVersionsRequest(), 0); resp.ErrorCode != 0 {
		t.Errorf("%+v", resp)
	}
}

// metadataRoute answers Metadata by what it saw.
func metadataRoute(seen func(*Peer, *kmsg.MetadataRequest), cs ...column) route {
	return on(compat.Metadata, func(_ *API, _ context.Context, p *Peer, req *kmsg.MetadataRequest) (*kmsg.MetadataResponse, error) {
		if seen != nil {
			seen(p, req)
		}
		return req.ResponseKind().(*kmsg.MetadataResponse), nil
	}, cs...)
}

// TestHeadersOfClients (enc-2): null and empty client ids and unknown tags, in header and body.
func TestHeadersOfClients(t *testing.T) {
	var ids []string
	s := bare(metadataRoute(func(p *Peer, req *kmsg.MetadataRequest) { ids = append(ids, p.ClientID) }))
	p := peerOf(s)
	for _, header := range []string{"\xff\xff\x00", "\x00\x00\x00", "\x00\x02me\x00", "\x00\x02me\x01\x05\x03xyz", "\xff\xff\x02\x01\x00\x90\x4e\x01q"} {
		for _, tags := range []string{"\x00", "\x01\x63\x02ab"} {
			reply, err := p.Handle(t.Context(), []byte("\x00\x03\x00\x0a\x00\x00\x00\x4d"+header+"\x00\x01\x00\x00"+tags))
			if err != nil {
				t.Fatalf("%q %q: %v", header, tags, err)
			}
			resp := kmsg.NewPtrMetadataResponse()
			resp.Version = 10
			decode(t, reply, resp, true)
		}
	}
	if want := []string{"", "", "", "", "me", "me", "me", "me", "", ""}; !slices.Equal(ids, want) {
		t.Errorf("client ids %q", ids)
	}
}

// TestRefusedRequests: each of these closes the connection without an answer.
func TestRefusedRequests(t *testing.T) {
	s := bare(metadataRoute(nil), on(compat.ApiVersions, (*API).apiVersions, beforeLogin))
	for name, c := range map[string]struct {
		frame string
		want  error
	}{
		"unknown key":                  {"\x03\xe8\x00\x00\x00\x00\x00\x4d\x00\x00", errUnserved},
		"negative key":                 {"\xff\xff\x00\x00\x00\x00\x00\x4d\x00\x00", errUnserved},
		"a key that is not served":     {"\x00\x18\x00\x00\x00\x00\x00\x4d\x00\x00", errUnserved},
		"Metadata version 100":         {"\x00\x03\x00\x64\x00\x00\x00\x4d\x00\x00", errUnserved},
		"Metadata version -1":          {"\x00\x03\xff\xff\x00\x00\x00\x4d\x00\x00", errUnserved},
		"half a header":                {"\x00\x03\x00\x01\x00", protocol.ErrMalformed},
		"a client id that is cut":      {"\x00\x03\x00\x01\x00\x00\x00\x4d\x00\x09abc", protocol.ErrMalformed},
		"no body":                      {"\x00\x03\x00\x01\x00\x00\x00\x4d\x00\x00", protocol.ErrMalformed},
		"more topics than bytes":       {"\x00\x03\x00\x01\x00\x00\x00\x4d\x00\x00\x7f\xff\xff\xff", protocol.ErrMalformed},
		"ApiVersions v3 without names": {"\x00\x12\x00\x03\x00\x00\x00\x4d\x00\x00\x00", protocol.ErrMalformed},
		"GET":                          {"GET / HTTP/1.1\r\n\r\n", protocol.ErrMalformed},
	} {
		reply, err := peerOf(s).Handle(t.Context(), []byte(c.frame))
		if !errors.Is(err, c.want) || reply.Answer != nil || reply.Wait != nil {
			t.Errorf("%s: %+v, %v", name, reply, err)
		}
	}
	p := peerOf(s)
	p.loggedIn = false
	if _, err := p.Handle(t.Context(), frameOf(kmsg.NewPtrMetadataRequest(), 1, "")); !errors.Is(err, errNotOpen) {
		t.Errorf("Metadata before login: %v", err)
	}
	if resp := ask[*kmsg.ApiVersionsResponse](t, p, kmsg.NewPtrApiVersionsRequest(), 0); resp.ErrorCode != 0 {
		t.Errorf("ApiVersions before login: %+v", resp)
	}
}

// none denies everything.
type none struct{}

func (none) Authorize(auth.Principal, net.Addr, auth.Operation, auth.Resource) bool { return false }

func TestRequestsThatNeedTheCluster(t *testing.T) {
	called := 0
	list := on(compat.ListPartitionReassignments, func(*API, context.Context, *Peer, *kmsg.ListPartitionReassignmentsRequest) (*kmsg.ListPartitionReassignmentsResponse, error) {
		called++
		return kmsg.NewPtrListPartitionReassignmentsResponse(), nil
	}, needsCluster(auth.Describe))
	s := bare(list, metadataRoute(nil))
	resp := ask[*kmsg.ListPartitionReassignmentsResponse](t, peerOf(s), kmsg.NewPtrListPartitionReassignmentsRequest(), 0)
	if resp.ErrorCode != 0 || called != 1 {
		t.Errorf("allowed: %+v", resp)
	}
	s.Authorizer = none{}
	resp = ask[*kmsg.ListPartitionReassignmentsResponse](t, peerOf(s), kmsg.NewPtrListPartitionReassignmentsRequest(), 0)
	if resp.ErrorCode != kerr.ClusterAuthorizationFailed.Code || called != 1 {
		t.Errorf("denied: %+v, handled %d times", resp, called)
	}
	ask[*kmsg.MetadataResponse](t, peerOf(s), kmsg.NewPtrMetadataRequest(), 1) // asks by topic, in its handler
}

// fixed charges what it is told to.
type fixed struct{ d map[quota.Kind]time.Duration }

func (f fixed) Charge(_ quota.Client, k quota.Kind, _ int64, _ time.Time) time.Duration {
	return f.d[k]
}

// TestQuotas: the answer carries the time and the next request is not handled before it is over.
func TestQuotas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := bare(metadataRoute(nil))
		s.Quota = fixed{map[quota.Kind]time.Duration{quota.RequestTime: 3 * time.Second}}
		p := peerOf(s)
		begun := time.Now()
		if resp := ask[*kmsg.MetadataResponse](t, p, kmsg.NewPtrMetadataRequest(), 8); resp.ThrottleMillis != 3000 || time.Since(begun) != 0 {
			t.Errorf("throttled %d ms after %v", resp.ThrottleMillis, time.Since(begun))
		}
		ask[*kmsg.MetadataResponse](t, p, kmsg.NewPtrMetadataRequest(), 8)
		if d := time.Since(begun); d != 3*time.Second {
			t.Errorf("the second was handled after %v", d)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := p.Handle(ctx, frameOf(kmsg.NewPtrMetadataRequest(), 8, "me")); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the end did not end the wait: %v", err)
		}
	})
}

// TestStages: the second stage completes the answer in place, with the call in its context.
func TestStages(t *testing.T) {
	boom := errors.New("boom")
	var wait func(context.Context, *kmsg.ProduceResponse) error
	produce := func(_ *API, _ context.Context, _ *Peer, req *kmsg.ProduceRequest) (*kmsg.ProduceResponse, func(context.Context) error, error) {
		resp := req.ResponseKind().(*kmsg.ProduceResponse)
		switch {
		case req.Acks == 0:
			return nil, nil, nil
		case req.Acks == 2:
			return nil, nil, boom
		case wait == nil:
			return resp, nil, nil
		}
		return resp, func(ctx context.Context) error { return wait(ctx, resp) }, nil
	}
	lines := &bytes.Buffer{}
	s := bare(staged(compat.Produce, produce))
	s.Logger = slog.New(slog.NewTextHandler(lines, nil))
	p := peerOf(s)
	request := func(acks int16) *kmsg.ProduceRequest {
		req := kmsg.NewPtrProduceRequest()
		req.Acks = acks
		return req
	}
	if reply, err := p.Handle(t.Context(), frameOf(request(0), 9, "")); err != nil || reply.Answer != nil || reply.Wait != nil {
		t.Errorf("acks=0: %+v, %v", reply, err)
	}
	if _, err := p.Handle(t.Context(), frameOf(request(2), 9, "")); !errors.Is(err, boom) {
		t.Errorf("%v", err)
	}
	ask[*kmsg.ProduceResponse](t, p, request(1), 9)
	wait = func(ctx context.Context, resp *kmsg.ProduceResponse) error {
		topic := kmsg.NewProduceResponseTopic()
		topic.Topic = "done"
		part := kmsg.NewProduceResponseTopicPartition()
		part.ErrorCode = code(ctx, boom)
		topic.Partitions = append(topic.Partitions, part)
		resp.Topics = append(resp.Topics, topic)
		return nil
	}
	resp := ask[*kmsg.ProduceResponse](t, p, request(-1), 9)
	if resp.Topics[0].Topic != "done" || resp.Topics[0].Partitions[0].ErrorCode != -1 {
		t.Errorf("%+v", resp)
	}
	if l := lines.String(); !strings.Contains(l, "request=Produce") || !strings.Contains(l, "boom") {
		t.Errorf("log: %s", l)
	}
	wait = func(context.Context, *kmsg.ProduceResponse) error { return boom }
	reply, err := p.Handle(t.Context(), frameOf(request(-1), 9, ""))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := reply.Wait(t.Context()); !errors.Is(err, boom) {
		t.Errorf("%v", err)
	}
}

func TestCode(t *testing.T) {
	s := bare(metadataRoute(nil))
	ctx := &call{Context: t.Context(), peer: peerOf(s), route: s.row(3)}
	for _, c := range []struct {
		err  error
		want int16
	}{
		{nil, 0},
		{fmt.Errorf("wrapped: %w", context.DeadlineExceeded), 7},
		{fmt.Errorf("wrapped: %w", kerr.TopicAlreadyExists), 36},
		{errors.New("nobody knows it"), -1},
		{context.Canceled, -1},
	} {
		if got := code(ctx, c.err); got != c.want {
			t.Errorf("%v: %d, want %d", c.err, got, c.want)
		}
	}
	seen := map[error]bool{}
	for _, row := range wire {
		if row.err == nil || row.code == nil || seen[row.err] {
			t.Errorf("row %v, %v is empty or double", row.err, row.code)
			continue
		}
		seen[row.err] = true
	}
	if message(nil) != nil || *message(errors.New("text")) != "text" {
		t.Error("message")
	}
}

func TestMetrics(t *testing.T) {
	reg := prometheus.NewRegistry()
	s := bare(metadataRoute(nil))
	s.Metrics = NewMetrics(reg)
	p := peerOf(s)
	for range 3 {
		ask[*kmsg.MetadataResponse](t, p, kmsg.NewPtrMetadataRequest(), 8)
	}
	failing := kmsg.NewPtrMetadataResponse()
	for range 2 {
		topic := kmsg.NewMetadataResponseTopic()
		topic.ErrorCode = 3
		failing.Topics = append(failing.Topics, topic)
	}
	s.Metrics.answered(&call{route: s.row(3)}, failing)
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]*dto.Metric{}
	for _, f := range families {
		got[f.GetName()] = f.Metric[0]
	}
	if m := got["kafka_network_requestmetrics_requests_total"]; m.GetCounter().GetValue() != 3 || m.Label[0].GetValue() != "Metadata" || m.Label[1].GetValue() != "8" {
		t.Errorf("requests: %v", m)
	}
	if m := got["kafka_network_requestmetrics_errors_total"]; m.GetCounter().GetValue() != 2 || m.Label[0].GetValue() != "UNKNOWN_TOPIC_OR_PARTITION" {
		t.Errorf("errors: %v", m)
	}
	if m := got["kafka_network_requestmetrics_totaltimems"]; m.GetSummary().GetSampleCount() != 3 || len(m.GetSummary().Quantile) != len(quantiles) {
		t.Errorf("times: %v", m)
	}
}

func TestHistogramQuantiles(t *testing.T) {
	var h histogram
	for i := range 1000 {
		h.observe(time.Duration(i+1) * time.Millisecond)
	}
	for _, d := range []time.Duration{-time.Second, 0, time.Microsecond, 1000 * time.Hour} {
		bucket(d) // has a bucket
	}
	var m dto.Metric
	if err := h.summary(totalDesc, "x").Write(&m); err != nil {
		t.Fatal(err)
	}
	for _, q := range m.GetSummary().Quantile {
		if want := q.GetQuantile() * 1000; q.GetValue() < want*0.85 || q.GetValue() > want*1.15 {
			t.Errorf("quantile %v is %v ms", q.GetQuantile(), q.GetValue())
		}
	}
	if sum := m.GetSummary().GetSampleSum(); sum != 500500 {
		t.Errorf("sum %v", sum)
	}
	for i := range len(h.buckets) - 1 {
		if bucket(time.Duration(bound(i)*1e6)) != i || bound(i) >= bound(i+1) {
			t.Errorf("bucket %d: middle %v ms", i, bound(i))
		}
	}
}

// FuzzHandle: no frame makes the way to a handler panic.
func FuzzHandle(f *testing.F) {
	var rows []route
	for _, a := range compat.APIs {
		rows = append(rows, route{API: a,
			make: func() kmsg.Request { return kmsg.RequestForKey(a.Key) },
			call: func(_ *API, c *call, req kmsg.Request) (protocol.Reply, error) {
				return protocol.Reply{Answer: c.encode(req.ResponseKind())}, nil
			},
		})
		f.Add(frameOf(kmsg.RequestForKey(a.Key), a.Max, "fuzz"))
	}
	s := bare(rows...)
	f.Fuzz(func(t *testing.T, frame []byte) {
		reply, err := peerOf(s).Handle(t.Context(), frame)
		if (reply.Answer == nil) == (err == nil) {
			t.Fatalf("%x: %+v, %v", frame, reply, err)
		}
	})
}

// TestEndedWithoutAnswer: what the end of the broker interrupts is not answered with an error that a
// client takes for final. What was done by then is answered.
func TestEndedWithoutAnswer(t *testing.T) {
	stop := func(ctx context.Context, resp *kmsg.ProduceResponse) {
		rt, rp := kmsg.NewProduceResponseTopic(), kmsg.NewProduceResponseTopicPartition()
		rp.ErrorCode = code(ctx, fmt.Errorf("waiting: %w", context.Canceled))
		rt.Partitions = append(rt.Partitions, rp)
		resp.Topics = append(resp.Topics, rt)
	}
	for _, late := range []bool{false, true} {
		p := peerOf(bare(staged(compat.Produce, func(_ *API, ctx context.Context, _ *Peer, req *kmsg.ProduceRequest) (*kmsg.ProduceResponse, func(context.Context) error, error) {
			resp := req.ResponseKind().(*kmsg.ProduceResponse)
			if !late {
				stop(ctx, resp)
				return resp, nil, nil
			}
			return resp, func(ctx context.Context) error { stop(ctx, resp); return nil }, nil
		})))
		reply, err := p.Handle(t.Context(), frameOf(kmsg.NewPtrProduceRequest(), 9, ""))
		if late && err == nil {
			reply.Answer, err = reply.Wait(t.Context())
		}
		if !errors.Is(err, context.Canceled) || reply.Answer != nil {
			t.Errorf("late %v: %v, an answer %v", late, err, reply.Answer != nil)
		}
	}
	p := peerOf(bare(on(compat.EndTxn, func(_ *API, ctx context.Context, _ *Peer, req *kmsg.EndTxnRequest) (*kmsg.EndTxnResponse, error) {
		resp := req.ResponseKind().(*kmsg.EndTxnResponse)
		resp.ErrorCode = code(ctx, context.Canceled)
		return resp, nil
	})))
	if reply, err := p.Handle(t.Context(), frameOf(kmsg.NewPtrEndTxnRequest(), 3, "")); !errors.Is(err, context.Canceled) || reply.Answer != nil {
		t.Errorf("EndTxn: %v, an answer %v", err, reply.Answer != nil)
	}

	ended, end := context.WithCancel(t.Context())
	end()
	var result error
	x := produceCall{s: bare(), p: p, req: &kmsg.ProduceRequest{}, resp: &kmsg.ProduceResponse{}, deadline: time.Now().Add(time.Hour)}
	x.waits = []produceWait{{topic: "t", rp: &kmsg.ProduceResponseTopicPartition{}, wait: func(context.Context) error { return result }}}
	if err := x.wait()(ended); err != nil {
		t.Errorf("flushed: %v", err)
	}
	if result = context.Canceled; !errors.Is(x.wait()(ended), context.Canceled) {
		t.Error("not flushed, and answered")
	}
}
