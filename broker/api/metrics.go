package api

import (
	"math/bits"
	"reflect"
	"strconv"
	"sync/atomic"
	"time"

	"ottla/compat"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Metrics counts and times requests under the names of Kafka's RequestMetrics. What an API
// takes to be counted is set aside at its first request; quantiles are worked out when they
// are scraped.
type Metrics struct {
	apis     []atomic.Pointer[requestMetrics] // by key
	unmapped prometheus.Counter

	verified       histogram     // what asking the transaction coordinator about partitions takes
	verifyFailures atomic.Uint64 // partitions that it did not confirm
}

// verifiedIn counts a question to the transaction coordinator about partitions (Kafka's AddPartitionsToTxnManager).
func (m *Metrics) verifiedIn(d time.Duration, failures int) {
	m.verified.observe(d)
	m.verifyFailures.Add(uint64(failures))
}

// requestMetrics are one API's. Kafka times by queues; here a request has its handler (local)
// and what the handler leaves to wait for (remote).
type requestMetrics struct {
	name     string
	versions []atomic.Uint64                 // requests by version
	errors   [maxErrorCode + 2]atomic.Uint64 // by code, from -1
	codes    atomic.Pointer[codes]           // where answers have them; nil before the first answer
	total    histogram
	local    histogram
	remote   histogram
	sizes    histogram
}

// maxErrorCode is the highest error code that is counted; Kafka 4.4's is 133.
const maxErrorCode = 150

// NewMetrics makes the metrics and registers them; a nil registerer leaves them unregistered.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{
		apis: make([]atomic.Pointer[requestMetrics], compat.APIs[len(compat.APIs)-1].Key+1),
		unmapped: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "ottla_errors_without_code_total",
			Help: "Errors answered as UNKNOWN_SERVER_ERROR because they have no wire code.",
		}),
	}
	if reg != nil {
		reg.MustRegister(m, m.unmapped)
	}
	return m
}

func (m *Metrics) of(a compat.API) *requestMetrics {
	p := &m.apis[a.Key]
	if r := p.Load(); r != nil {
		return r
	}
	p.CompareAndSwap(nil, &requestMetrics{
		name:     a.Name,
		versions: make([]atomic.Uint64, a.Max+1),
	})
	return p.Load()
}

// handled counts a request whose handler has returned; whole says that nothing is left to wait
// for.
func (m *Metrics) handled(c *call, whole bool) {
	r := m.of(c.route.API)
	r.versions[c.header.Version].Add(1)
	r.sizes.add(uint64(c.size), int64(c.size))
	d := time.Since(c.begun)
	r.local.observe(d)
	if whole {
		r.remote.observe(0)
		r.total.observe(d)
	}
	c.handled = d
}

// answered counts the errors in an answer.
func (m *Metrics) answered(c *call, resp kmsg.Response) {
	r := m.of(c.route.API)
	v := reflect.ValueOf(resp).Elem()
	where := r.codes.Load()
	if where == nil {
		where = findCodes(v.Type())
		r.codes.Store(where)
	}
	where.count(v, &r.errors)
}

// fetched counts the errors in an answer to a Fetch, which is not encoded by way of encode.
func (m *Metrics) fetched(resp *kmsg.FetchResponse) {
	r := m.of(compat.Fetch)
	count := func(code int16) {
		if code != 0 && code >= -1 && code <= maxErrorCode {
			r.errors[code+1].Add(1)
		}
	}
	count(resp.ErrorCode)
	for i := range resp.Topics {
		for k := range resp.Topics[i].Partitions {
			count(resp.Topics[i].Partitions[k].ErrorCode)
		}
	}
}

// codes says which fields of an answer's struct are, or contain, error codes.
type codes struct {
	own    []int
	inside []codesInside
}

type codesInside struct {
	field  int
	repeat bool
	codes  *codes
}

func findCodes(t reflect.Type) *codes {
	var c codes
	for i := range t.NumField() {
		f := t.Field(i)
		inner, repeat := f.Type, f.Type.Kind() == reflect.Slice
		if repeat {
			inner = inner.Elem()
		}
		switch {
		case f.Name == "ErrorCode" && f.Type.Kind() == reflect.Int16:
			c.own = append(c.own, i)
		case inner.Kind() == reflect.Struct:
			if in := findCodes(inner); in.own != nil || in.inside != nil {
				c.inside = append(c.inside, codesInside{i, repeat, in})
			}
		}
	}
	return &c
}

func (c *codes) count(v reflect.Value, into *[maxErrorCode + 2]atomic.Uint64) {
	for _, i := range c.own {
		if code := v.Field(i).Int(); code != 0 && code >= -1 && code <= maxErrorCode {
			into[code+1].Add(1)
		}
	}
	for _, in := range c.inside {
		f := v.Field(in.field)
		if !in.repeat {
			in.codes.count(f, into)
			continue
		}
		for i := range f.Len() {
			in.codes.count(f.Index(i), into)
		}
	}
}

// waited counts the second stage of a request, when it is over.
func (m *Metrics) waited(c *call) {
	r := m.of(c.route.API)
	d := time.Since(c.begun)
	r.remote.observe(d - c.handled)
	r.total.observe(d)
}

var (
	requestLabels = []string{"request"}

	// With two names: as the JMX exporter's example rules write Kafka's beans, and as the Strimzi
	// metrics reporter does.
	requestsDescs = twoNames("requests", "Requests by API and version.", "request", "version")
	errorsDescs   = twoNames("errors", "Error codes in answers, by API and error.", "request", "error")

	totalDesc = prometheus.NewDesc("kafka_network_requestmetrics_totaltimems",
		"Milliseconds from a request's arrival to its encoded answer.", requestLabels, nil)
	localDesc = prometheus.NewDesc("kafka_network_requestmetrics_localtimems",
		"Milliseconds in a request's handler, its waiting included where it waits there.", requestLabels, nil)
	remoteDesc = prometheus.NewDesc("kafka_network_requestmetrics_remotetimems",
		"Milliseconds for which an answer waited for replicas or the disk.", requestLabels, nil)
	sizesDesc = prometheus.NewDesc("kafka_network_requestmetrics_requestbytes",
		"Sizes of requests in bytes.", requestLabels, nil)
)

func twoNames(what, help string, labels ...string) [2]*prometheus.Desc {
	return [2]*prometheus.Desc{
		prometheus.NewDesc("kafka_network_requestmetrics_"+what+"_total", help, labels, nil),
		prometheus.NewDesc("kafka_network_requestmetrics_"+what+"persec_total", help, labels, nil),
	}
}

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range [...]*prometheus.Desc{requestsDescs[0], requestsDescs[1], errorsDescs[0], errorsDescs[1], totalDesc, localDesc, remoteDesc, sizesDesc,
		verifiedDesc, verifyFailuresDescs[0], verifyFailuresDescs[1]} {
		ch <- d
	}
}

var (
	verifiedDesc = prometheus.NewDesc("kafka_server_addpartitionstotxnmanager_verificationtimems",
		"Time to ask the transaction coordinator whether partitions belong to a transaction, or to add them.", nil, nil)
	verifyFailuresDescs = [2]*prometheus.Desc{
		prometheus.NewDesc("kafka_server_addpartitionstotxnmanager_verificationfailurerate_total", verifyFailuresHelp, nil, nil),
		prometheus.NewDesc("kafka_server_addpartitionstotxnmanager_verificationfailurerate_count", verifyFailuresHelp, nil, nil),
	}
)

const verifyFailuresHelp = "Partitions that the transaction coordinator did not confirm to belong to a transaction."

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(ch chan<- prometheus.Metric) {
	counter := func(descs [2]*prometheus.Desc, n uint64, labels ...string) {
		for _, d := range descs {
			ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
		}
	}
	ch <- m.verified.summary(verifiedDesc)
	counter(verifyFailuresDescs, m.verifyFailures.Load())
	for i := range m.apis {
		r := m.apis[i].Load()
		if r == nil {
			continue
		}
		for v := range r.versions {
			if n := r.versions[v].Load(); n > 0 {
				counter(requestsDescs, n, r.name, strconv.Itoa(v))
			}
		}
		for i := range r.errors {
			if n := r.errors[i].Load(); n > 0 {
				counter(errorsDescs, n, r.name, errorName(int16(i-1)))
			}
		}
		ch <- r.total.summary(totalDesc, r.name)
		ch <- r.local.summary(localDesc, r.name)
		ch <- r.remote.summary(remoteDesc, r.name)
		ch <- r.sizes.scaled(sizesDesc, 1, 1, r.name)
	}
}

// errorName is Kafka's name of an error code.
func errorName(code int16) string {
	if k := kerr.TypedErrorForCode(code); k != nil {
		return k.Message
	}
	return strconv.Itoa(int(code))
}

// histogram counts durations, or sizes, in buckets of a quarter of a power of two of a unit,
// microseconds or bytes, which is exact enough for quantiles and costs an addition. The last
// bucket holds whatever is longer than an hour.
type histogram struct {
	sum     atomic.Int64 // nanoseconds, or bytes
	buckets [32 * 4]atomic.Uint64
}

func (h *histogram) add(units uint64, sum int64) {
	h.sum.Add(sum)
	h.buckets[place(units)].Add(1)
}

func (h *histogram) observe(d time.Duration) { h.add(micros(d), int64(d)) }

func micros(d time.Duration) uint64 { return uint64(max(d, 0) / time.Microsecond) }

// bucket returns the number of a duration's bucket.
func bucket(d time.Duration) int { return place(micros(d)) }

// place returns the number of a bucket: the power of two and the two bits below it.
func place(units uint64) int {
	if units < 4 {
		return int(units)
	}
	n := bits.Len64(units)
	return min((n-2)*4+int(units>>(n-3)&3), 32*4-1)
}

// middle returns the middle of a bucket in units.
func middle(i int) float64 {
	if i < 4 {
		return float64(i)
	}
	n, low := i/4+2, uint64(i%4+4)
	return float64(low<<(n-3)*2+1<<(n-3)) / 2
}

// bound returns the middle of a bucket in milliseconds.
func bound(i int) float64 { return middle(i) / 1e3 }

var quantiles = [...]float64{0.5, 0.75, 0.95, 0.98, 0.99, 0.999}

// summary is the metric of durations, in milliseconds.
func (h *histogram) summary(d *prometheus.Desc, labels ...string) prometheus.Metric {
	return h.scaled(d, 1e3, 1e6, labels...)
}

// scaled is the metric in another measure, of which units and parts of the sum make up one.
func (h *histogram) scaled(d *prometheus.Desc, units, parts float64, labels ...string) prometheus.Metric {
	var counts [len(h.buckets)]uint64
	var n uint64
	for i := range h.buckets {
		counts[i] = h.buckets[i].Load()
		n += counts[i]
	}
	values := make(map[float64]float64, len(quantiles))
	for _, q := range quantiles {
		rank, seen := uint64(q*float64(n)), uint64(0)
		for i, c := range counts {
			if seen += c; c > 0 && seen >= max(rank, 1) {
				values[q] = middle(i) / units
				break
			}
		}
	}
	return prometheus.MustNewConstSummary(d, n, float64(h.sum.Load())/parts, values, labels...)
}
