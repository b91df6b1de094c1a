// Package api answers requests: one typed handler an API, in a file named after it. What
// concerns every request (its header, its version, the gate before login, decoding, quotas,
// metrics, encoding) happens once, in serve.go; routes.go has the table of handlers; errors.go
// turns errors of the rooms below into wire codes. A handler maps a request to calls and an
// answer and decides nothing that belongs to those rooms.
package api

import (
	"errors"
	"log/slog"
	"time"

	"ottla/broker/auth"
	"ottla/broker/config"
	"ottla/broker/controller"
	"ottla/broker/metadata"
	"ottla/broker/quota"
	"ottla/broker/registry"
	"ottla/broker/replica"
	"ottla/coordinator/group"
	"ottla/coordinator/txn"
	"ottla/log"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// API has what the handlers act on. The exported fields are set by the broker before New and
// not changed afterwards.
type API struct {
	Logger        *slog.Logger
	Now           func() time.Time
	BrokerID      int32
	Meta          *metadata.Holder
	Config        *config.Store
	Logs          *log.Manager
	Replicas      *replica.Manager
	FetchSessions *FetchSessions
	ProducerIDs   *ProducerIDs
	Groups        *group.Coordinator
	Txns          *txn.Coordinator
	Enroller      Enroller                                      // nil: Txns itself, which then has every transactional id
	Features      func() (levels map[string]int16, epoch int64) // finalized; epoch below 0, or nil: nothing is
	Control       *controller.Controller
	Tree          registry.Tree     // keeps the offsets of version 0
	Own           controller.Broker // this broker as controllers of its cluster reach it; nil: it is alone
	Maker         TopicMaker        // makes topics where another broker is the controller; nil: nobody does

	Authorizer auth.Authorizer
	Quota      quota.Limiter
	Metrics    *Metrics

	table    []*route // by key; nil where an API is not served
	versions []kmsg.ApiVersionsResponseApiKey
}

// New checks that everything a handler needs is there and binds the routes.
func New(a API) (*API, error) {
	for _, part := range []struct {
		name string
		is   bool
	}{
		{"logger", a.Logger != nil}, {"clock", a.Now != nil}, {"metadata", a.Meta != nil}, {"settings", a.Config != nil},
		{"logs", a.Logs != nil}, {"replicas", a.Replicas != nil}, {"fetch sessions", a.FetchSessions != nil},
		{"producer ids", a.ProducerIDs != nil}, {"controller", a.Control != nil}, {"registry", a.Tree != nil}, {"groups", a.Groups != nil}, {"transactions", a.Txns != nil},
		{"authorizer", a.Authorizer != nil}, {"quota limiter", a.Quota != nil},
	} {
		if !part.is {
			return nil, errors.New("api: no " + part.name)
		}
	}
	if a.Enroller == nil {
		a.Enroller = a.Txns
	}
	if a.Metrics == nil {
		a.Metrics = NewMetrics(nil)
	}
	s := &a
	rows := routes()
	if s.Own != nil {
		rows = append(rows, clusterRoutes()...)
	}
	s.bind(rows)
	return s, nil
}

// bind makes the table of handlers and, from the same rows, what ApiVersions announces.
func (s *API) bind(rows []route) {
	for i := range rows {
		r := &rows[i]
		for int(r.Key) >= len(s.table) {
			s.table = append(s.table, nil)
		}
		s.table[r.Key] = r
	}
	for _, r := range s.table {
		if r == nil {
			continue
		}
		k := kmsg.NewApiVersionsResponseApiKey()
		k.ApiKey, k.MinVersion, k.MaxVersion = r.Key, r.Min, r.Max
		s.versions = append(s.versions, k)
	}
}

// row returns the route of a key, nil where it is not served.
func (s *API) row(key int16) *route {
	if key < 0 || int(key) >= len(s.table) {
		return nil
	}
	return s.table[key]
}
