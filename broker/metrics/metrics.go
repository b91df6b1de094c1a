// Package metrics serves what the rooms count: /metrics for Prometheus, /healthz (the process
// lives) and /readyz (requests are served). The rooms make their metrics themselves, from the
// registerer that they are given.
package metrics

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Limits of the HTTP side, which only scrapers and health checks use.
const (
	headerTimeout = 5 * time.Second
	idleTimeout   = 2 * time.Minute
	maxHeader     = 16 << 10
)

// Server answers HTTP on one address.
type Server struct {
	listener net.Listener
	http     *http.Server
	ready    atomic.Bool
	done     chan struct{}
}

// Serve listens on addr (host:port) and answers until Close. The collectors of the process and
// of Go's runtime are registered by the first scrape: making them takes longer than all the rest
// of a start.
func Serve(addr string, reg *prometheus.Registry, log *slog.Logger) (*Server, error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, err
	}
	s := &Server{listener: l, done: make(chan struct{})}
	mux := http.NewServeMux()
	scrape := sync.OnceValue(func() http.Handler {
		reg.MustRegister(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), collectors.NewGoCollector())
		return promhttp.HandlerFor(reg, promhttp.HandlerOpts{ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn)})
	})
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, r *http.Request) { scrape().ServeHTTP(w, r) })
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, r *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		if !s.ready.Load() {
			http.Error(w, "starting", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ready")
	})
	s.http = &http.Server{Handler: mux, ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeader}
	go func() {
		defer close(s.done)
		if err := s.http.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			log.Error("metrics and health are no longer served", "addr", addr, "err", err)
		}
	}()
	return s, nil
}

// Addr is the address that is listened on.
func (s *Server) Addr() net.Addr { return s.listener.Addr() }

// SetReady says what /readyz answers.
func (s *Server) SetReady(ready bool) { s.ready.Store(ready) }

// Close stops at once: a scrape that is under way is cut.
func (s *Server) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	if err := s.http.Shutdown(ctx); err != nil {
		s.http.Close()
	}
	<-s.done
	return nil
}
