package txn

import "math"

// State is where a transactional id is (Kafka's TransactionState; the numbers are those in the log).
type State int8

const (
	Empty          State = iota // a producer, and no transaction yet
	Ongoing                     // a transaction is open
	PrepareCommit               // it is decided; the markers are being written
	PrepareAbort                //
	CompleteCommit              // every marker is written
	CompleteAbort               //
)

var stateNames = [...]string{"Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort"}

// String is Kafka's name of the state.
func (s State) String() string {
	if s < Empty || s > CompleteAbort {
		return "Unknown"
	}
	return stateNames[s]
}

// prepared: decided, but not complete.
func (s State) prepared() bool { return s == PrepareCommit || s == PrepareAbort }

// quiet: nothing is open, so the id may expire or begin anew.
func (s State) quiet() bool { return s == Empty || s == CompleteCommit || s == CompleteAbort }

// stateOf finds a state by Kafka's name. Dead and PrepareEpochFence are Kafka's too; no
// transactional id is ever seen in them.
func stateOf(name string) (s State, known bool) {
	for i, n := range stateNames {
		if n == name {
			return State(i), true
		}
	}
	return -1, name == "Dead" || name == "PrepareEpochFence"
}

// epochRises: the client goes by transaction.version 2.
func epochRises(version int16) bool { return version >= 2 }

// exhausted: the producer id has no epoch left to give to a client. The last one of all is kept
// to fence the client with.
func exhausted(epoch int16) bool { return epoch >= math.MaxInt16-1 }
