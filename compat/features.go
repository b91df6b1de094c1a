package compat

// Names of features that clients and brokers agree on (KIP-584).
const (
	GroupVersion       = "group.version"
	MetadataVersion    = "metadata.version"
	TransactionVersion = "transaction.version"
)

// Feature is a feature that ottla has, and the levels of it. Kafka 4.4's others are not named
// before they are built. A feature whose lowest level is 0 can be off: 0 is the level of what is
// not finalized.
type Feature struct {
	Name     string
	Min, Max int16
}

// Features are all, by name.
var Features = [...]Feature{
	{GroupVersion, 0, 1},       // 1: KIP-848
	{MetadataVersion, 7, 33},   // 3.3-IV3 to 4.4-IV2; nothing here depends on it
	{TransactionVersion, 0, 2}, // 1: flexible records; 2: KIP-890
}

// FindFeature finds a feature by its name.
func FindFeature(name string) (Feature, bool) {
	for _, f := range Features {
		if f.Name == name {
			return f, true
		}
	}
	return Feature{}, false
}

// metadataChanges are the levels of metadata.version that have brought other metadata
// (MetadataVersion.didMetadataChange), ascending.
var metadataChanges = [...]int16{7, 8, 11, 13, 14, 15, 17, 23, 30, 32, 33}

// MetadataChanged tells whether going back from a level of metadata.version to a lower one goes
// below a level that has brought other metadata.
func MetadataChanged(from, to int16) bool {
	for _, level := range metadataChanges {
		if to < level && level <= from {
			return true
		}
	}
	return false
}
