package compat

// Names of features that clients and brokers agree on (KIP-584).
const (
	GroupVersion       = "group.version"
	TransactionVersion = "transaction.version"
)

// Feature is a feature that ottla has, and the levels of it. Kafka 4.4's others are not named
// before they are built.
type Feature struct {
	Name     string
	Min, Max int16
}

// Features are all, by name.
var Features = [...]Feature{
	{GroupVersion, 0, 1},       // 1: KIP-848
	{TransactionVersion, 0, 2}, // 1: flexible records; 2: KIP-890
}
