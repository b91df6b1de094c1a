// Package auth says who a client is and what it may do. The types are those of Kafka's ACLs
// (org.apache.kafka.common.acl, .resource); an Authorizer decides.
package auth

import "net"

// Operation is what is done to a resource; the numbers are those on the wire.
type Operation int8

const (
	OperationAny    Operation = 1
	OperationAll    Operation = 2
	Read            Operation = 3
	Write           Operation = 4
	Create          Operation = 5
	Delete          Operation = 6
	Alter           Operation = 7
	Describe        Operation = 8
	ClusterAction   Operation = 9
	DescribeConfigs Operation = 10
	AlterConfigs    Operation = 11
	IdempotentWrite Operation = 12
	CreateTokens    Operation = 13
	DescribeTokens  Operation = 14
	TwoPhaseCommit  Operation = 15
)

// ResourceType is a kind of resource; the numbers are those on the wire.
type ResourceType int8

const (
	ResourceAny     ResourceType = 1
	Topic           ResourceType = 2
	Group           ResourceType = 3
	Cluster         ResourceType = 4
	TransactionalID ResourceType = 5
	DelegationToken ResourceType = 6
	User            ResourceType = 7
)

// ClusterName is the name of the one resource of type Cluster.
const ClusterName = "kafka-cluster"

// Resource is one thing that an operation is done to.
type Resource struct {
	Type ResourceType
	Name string
}

// Operations returns the operations that a resource of this type knows, as a set of bits by
// the operations' numbers: the form of the authorized_operations fields (KIP-430).
func (t ResourceType) Operations() int32 {
	var set int32
	for _, op := range operations[t] {
		set |= 1 << op
	}
	return set
}

var operations = [...][]Operation{
	Topic:           {Read, Write, Create, Delete, Alter, Describe, DescribeConfigs, AlterConfigs},
	Group:           {Read, Delete, Describe, DescribeConfigs, AlterConfigs},
	Cluster:         {Create, Alter, Describe, ClusterAction, DescribeConfigs, AlterConfigs, IdempotentWrite},
	TransactionalID: {Write, Describe, TwoPhaseCommit},
	DelegationToken: {Describe},
	User:            {CreateTokens, DescribeTokens},
}

// Principal is who a connection acts as.
type Principal struct {
	Type string // "User"
	Name string
}

// Anonymous is the principal of a connection that did not log in.
var Anonymous = Principal{Type: "User", Name: "ANONYMOUS"}

func (p Principal) String() string { return p.Type + ":" + p.Name }

// Authorizer decides whether a principal, connected from an address, may do something. It is
// called for every resource of every request, by many goroutines at once.
type Authorizer interface {
	Authorize(p Principal, from net.Addr, op Operation, r Resource) bool
}

// AllowAll is the authorizer of a broker without authorizer.class.name.
type AllowAll struct{}

// Authorize always returns true.
func (AllowAll) Authorize(Principal, net.Addr, Operation, Resource) bool { return true }
