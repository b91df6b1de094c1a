package api

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
)

// refusal is an error that a handler itself finds in a request: a wire code with a text for the
// client.
type refusal struct {
	code *kerr.Error
	text string
}

func (r *refusal) Error() string { return r.text }
func (r *refusal) Unwrap() error { return r.code }

// refuse makes the error of a request that is refused with a code and a reason.
func refuse(code *kerr.Error, format string, args ...any) error {
	return &refusal{code, fmt.Sprintf(format, args...)}
}
