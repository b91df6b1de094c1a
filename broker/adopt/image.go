package adopt

import (
	"errors"
	"fmt"

	"ottla/compat"
	"ottla/protocol/schema"
)

// ErrBroken is a __cluster_metadata that cannot be read as a whole: what it says of settings may be
// out of date then, so nothing of it is used.
var ErrBroken = errors.New("broken cluster metadata")

// Image is what a cluster had agreed on, as the records of its metadata log say when they are
// replayed (org.apache.kafka.image.MetadataImage). What concerns the life of a KRaft quorum alone
// (registrations, fencing, migration) is not in it.
type Image struct {
	topics   map[uuid]*topic
	names    map[string]uuid
	configs  map[resource]map[string]string
	scram    map[string]map[int8]compat.ScramCredential
	acls     map[uuid]acl
	quotas   map[client]map[string]float64
	features map[string]int16
	tokens   map[string]struct{} // delegation tokens, by their id
	producer int64               // the first producer id that no broker has, 0: none has any

	Offset int64  // where the log ends that was read
	From   string // the snapshot that it began with, empty if there was none
	Torn   bool   // bytes of an append that was not finished lay at the end
}

type uuid = [16]byte

type topic struct {
	name       string
	id         uuid
	partitions map[int32]*partition
}

type partition struct {
	replicas []int32
	epoch    int32 // leader epoch
}

// resource is what settings are of. Kinds are Kafka's ConfigResource.Type.
type resource struct {
	kind int8
	name string
}

const (
	kindTopic         int8 = 2
	kindBroker        int8 = 4
	kindClientMetrics int8 = 16
	kindGroup         int8 = 32
)

type acl struct {
	resource, pattern int8
	name              string
	entry             compat.ACL
	known             bool // all its codes are
}

// client is what quotas are of: each is said or not, and empty for the default of its kind.
type client struct {
	user, client, ip          string
	hasUser, hasClient, hasIP bool
	unknown                   string // a kind that is not known
}

func newImage() *Image {
	return &Image{
		topics: map[uuid]*topic{}, names: map[string]uuid{}, configs: map[resource]map[string]string{},
		scram: map[string]map[int8]compat.ScramCredential{}, acls: map[uuid]acl{}, quotas: map[client]map[string]float64{},
		features: map[string]int16{}, tokens: map[string]struct{}{},
	}
}

// apply replays one record. An error means that the records do not fit together.
func (i *Image) apply(m schema.Message) error {
	f := m.Fields
	switch m.Name {
	case "TopicRecord":
		t := &topic{schema.As[string](f, "name"), schema.As[uuid](f, "topicId"), map[int32]*partition{}}
		if i.topics[t.id] != nil {
			return fmt.Errorf("%w: topic %s twice", ErrBroken, t.name)
		}
		i.topics[t.id], i.names[t.name] = t, t.id
	case "RemoveTopicRecord":
		t := i.topics[schema.As[uuid](f, "topicId")]
		if t == nil {
			return fmt.Errorf("%w: removal of a topic that is not there", ErrBroken)
		}
		delete(i.topics, t.id)
		delete(i.configs, resource{kindTopic, t.name})
		if i.names[t.name] == t.id {
			delete(i.names, t.name)
		}
	case "PartitionRecord", "PartitionChangeRecord":
		return i.partition(m)
	case "ConfigRecord":
		r := resource{schema.As[int8](f, "resourceType"), schema.As[string](f, "resourceName")}
		name := schema.As[string](f, "name")
		if value, ok := f.Get("value").(string); ok {
			put(i.configs, r, name, value)
		} else {
			take(i.configs, r, name)
		}
	case "UserScramCredentialRecord":
		put(i.scram, schema.As[string](f, "name"), schema.As[int8](f, "mechanism"), compat.ScramCredential{
			Salt: schema.As[[]byte](f, "salt"), StoredKey: schema.As[[]byte](f, "storedKey"),
			ServerKey: schema.As[[]byte](f, "serverKey"), Iterations: schema.As[int32](f, "iterations"),
		})
	case "RemoveUserScramCredentialRecord":
		take(i.scram, schema.As[string](f, "name"), schema.As[int8](f, "mechanism"))
	case "AccessControlEntryRecord":
		a := acl{resource: schema.As[int8](f, "resourceType"), pattern: schema.As[int8](f, "patternType"), name: schema.As[string](f, "resourceName")}
		a.entry, a.known = compat.NewACL(schema.As[string](f, "principal"), schema.As[string](f, "host"), schema.As[int8](f, "operation"), schema.As[int8](f, "permissionType"))
		i.acls[schema.As[uuid](f, "id")] = a
	case "RemoveAccessControlEntryRecord":
		delete(i.acls, schema.As[uuid](f, "id"))
	case "ClientQuotaRecord":
		c, key := quotaClient(schema.As[[]schema.Struct](f, "entity")), schema.As[string](f, "key")
		if schema.As[bool](f, "remove") {
			take(i.quotas, c, key)
		} else {
			put(i.quotas, c, key, schema.As[float64](f, "value"))
		}
	case "FeatureLevelRecord":
		name, level := schema.As[string](f, "name"), schema.As[int16](f, "featureLevel")
		if i.features[name] = level; level == 0 {
			delete(i.features, name)
		}
	case "ProducerIdsRecord":
		i.producer = max(i.producer, schema.As[int64](f, "nextProducerId"))
	case "DelegationTokenRecord":
		i.tokens[schema.As[string](f, "tokenId")] = struct{}{}
	case "RemoveDelegationTokenRecord":
		delete(i.tokens, schema.As[string](f, "tokenId"))
	}
	return nil
}

// partition replays what a partition was made as, or what became of it: every change of its
// leader, also to none, raises the leader epoch (PartitionRegistration.merge).
func (i *Image) partition(m schema.Message) error {
	t := i.topics[schema.As[uuid](m.Fields, "topicId")]
	n := schema.As[int32](m.Fields, "partitionId")
	if t == nil || n < 0 {
		return fmt.Errorf("%w: partition %d of a topic that is not there", ErrBroken, n)
	}
	if m.Name == "PartitionRecord" {
		t.partitions[n] = &partition{schema.As[[]int32](m.Fields, "replicas"), schema.As[int32](m.Fields, "leaderEpoch")}
		return nil
	}
	p := t.partitions[n]
	if p == nil {
		return fmt.Errorf("%w: change of partition %s-%d, which is not there", ErrBroken, t.name, n)
	}
	if m.Fields.Has("leader") {
		p.epoch++
	}
	if replicas, ok := m.Fields.Get("replicas").([]int32); ok {
		p.replicas = replicas
	}
	return nil
}

func quotaClient(parts []schema.Struct) (c client) {
	for _, part := range parts {
		name := schema.As[string](part, "entityName") // null is the default
		switch kind := schema.As[string](part, "entityType"); kind {
		case "user":
			c.user, c.hasUser = name, true
		case "client-id":
			c.client, c.hasClient = name, true
		case "ip":
			c.ip, c.hasIP = name, true
		default:
			c.unknown = kind
		}
	}
	return c
}

// check finds what no cluster can have agreed on.
func (i *Image) check() error {
	for _, t := range i.topics {
		if i.names[t.name] != t.id {
			return fmt.Errorf("%w: two topics %s", ErrBroken, t.name)
		}
		for n := range t.partitions {
			if int(n) >= len(t.partitions) {
				return fmt.Errorf("%w: topic %s has partition %d and %d partitions in all", ErrBroken, t.name, n, len(t.partitions))
			}
		}
	}
	return nil
}

func put[K, N comparable, V any](all map[K]map[N]V, k K, n N, v V) {
	if all[k] == nil {
		all[k] = map[N]V{}
	}
	all[k][n] = v
}

func take[K, N comparable, V any](all map[K]map[N]V, k K, n N) {
	if delete(all[k], n); len(all[k]) == 0 {
		delete(all, k)
	}
}
