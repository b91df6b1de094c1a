// Package quota limits what clients take of a broker: bytes produced and fetched, time spent
// on requests, and changes asked of the controller (KIP-13, KIP-124, KIP-599).
package quota

import "time"

// Kind is what is limited; the names are the quota configs of Kafka.
type Kind int8

const (
	ProduceBytes Kind = iota // producer_byte_rate: bytes a second
	FetchBytes               // consumer_byte_rate: bytes a second
	RequestTime              // request_percentage: nanoseconds of handling
	Mutations                // controller_mutation_rate: partitions created or deleted a second
)

func (k Kind) String() string {
	return [...]string{"producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate"}[k]
}

// Client is whom an amount is charged to.
type Client struct {
	User     string // the principal's name
	ClientID string
}

// Limiter charges amounts to clients. The returned time is how long the client has to be left
// alone before it is within its quota again; zero if it is.
type Limiter interface {
	Charge(c Client, k Kind, amount int64, now time.Time) time.Duration
}

// Unlimited is the limiter of a broker without quotas.
type Unlimited struct{}

// Charge returns zero.
func (Unlimited) Charge(Client, Kind, int64, time.Time) time.Duration { return 0 }
