package compat

import (
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Paths of access control (kafka.zk.ZkAclStore).
const (
	PathACLs               = "/kafka-acl"
	PathACLsExtended       = "/kafka-acl-extended"
	PathACLsPrefixed       = "/kafka-acl-extended/prefixed"
	PathACLChanges         = "/kafka-acl-changes"
	PathACLChangesExtended = "/kafka-acl-extended-changes"

	PrefixACLChange = "acl_changes_"
)

// Kafka's codes of how an ACL names its resource (PatternType).
const (
	PatternLiteral  int8 = 3
	PatternPrefixed int8 = 4
)

// ACLPaths gives the nodes that 3.9.1's authorizer makes before there is any ACL, parents first.
func ACLPaths() []string {
	paths := []string{PathACLs, PathACLsExtended, PathACLsPrefixed, PathACLChanges, PathACLChangesExtended}
	for code := int8(0); code < 1<<7-1; code++ {
		if t := aclResource(code); t != "" {
			paths = append(paths, PathACLs+"/"+t, PathACLsPrefixed+"/"+t)
		}
	}
	return paths
}

// PathACL is where the ACLs of a resource are. Codes are Kafka's (ResourceType, PatternType). A
// name with a slash has no place in a path, and then, as for codes that are not known, ok is false.
func PathACL(resource, pattern int8, name string) (path string, ok bool) {
	t := aclResource(resource)
	if t == "" || name == "" || strings.Contains(name, "/") {
		return "", false
	}
	switch pattern {
	case PatternLiteral:
		return PathACLs + "/" + t + "/" + name, true
	case PatternPrefixed:
		return PathACLsPrefixed + "/" + t + "/" + name, true
	}
	return "", false
}

// aclResource is how paths spell a type of resource (SecurityUtils.resourceTypeName), empty
// where there is none of that code.
func aclResource(code int8) string {
	switch code {
	case 2:
		return "Topic"
	case 3:
		return "Group"
	case 4:
		return "Cluster"
	case 5:
		return "TransactionalId"
	case 6:
		return "DelegationToken"
	case 7:
		return "User"
	}
	return ""
}

// ACL is one entry of a node below /kafka-acl. Operation and Permission are words: Read, Allow.
type ACL struct {
	Principal  string `json:"principal"` // User:alice
	Permission string `json:"permissionType"`
	Host       string `json:"host"`
	Operation  string `json:"operation"`
}

// NewACL makes an entry of Kafka's codes (AclOperation, AclPermissionType); ok is false for those
// that are not known.
func NewACL(principal, host string, operation, permission int8) (a ACL, ok bool) {
	a = ACL{Principal: principal, Host: host}
	switch operation {
	case 2:
		a.Operation = "All"
	case 3:
		a.Operation = "Read"
	case 4:
		a.Operation = "Write"
	case 5:
		a.Operation = "Create"
	case 6:
		a.Operation = "Delete"
	case 7:
		a.Operation = "Alter"
	case 8:
		a.Operation = "Describe"
	case 9:
		a.Operation = "ClusterAction"
	case 10:
		a.Operation = "DescribeConfigs"
	case 11:
		a.Operation = "AlterConfigs"
	case 12:
		a.Operation = "IdempotentWrite"
	case 13:
		a.Operation = "CreateTokens"
	case 14:
		a.Operation = "DescribeTokens"
	case 15:
		a.Operation = "TwoPhaseCommit"
	}
	switch permission {
	case 2:
		a.Permission = "Deny"
	case 3:
		a.Permission = "Allow"
	}
	return a, a.Operation != "" && a.Permission != "" && strings.Contains(principal, ":")
}

// ACLNode is the data of a node below /kafka-acl and /kafka-acl-extended.
type ACLNode struct{ ACLs []ACL }

type aclWire struct {
	Version int    `json:"version"`
	ACLs    *[]ACL `json:"acls"`
}

// Encode writes the entries in an order of their own: they are a set.
func (n ACLNode) Encode() []byte {
	sorted := slices.Clone(n.ACLs)
	slices.SortFunc(sorted, func(a, b ACL) int {
		return strings.Compare(a.Principal+"\x00"+a.Operation+"\x00"+a.Permission+"\x00"+a.Host, b.Principal+"\x00"+b.Operation+"\x00"+b.Permission+"\x00"+b.Host)
	})
	sorted = slices.Compact(sorted)
	b := []byte(`{"acls":[`)
	for i, a := range sorted {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, encodeZnode(a)...)
	}
	return append(b, `],"version":1}`...)
}

// DecodeACLs reads such a node.
func DecodeACLs(data []byte) (ACLNode, error) {
	w, err := decodeZnode("acls", data, func(w *aclWire) int { return w.Version }, 1, 1)
	if err == nil && w.ACLs == nil {
		err = znodeError("acls", data, errors.New("no acls"))
	}
	if err != nil {
		return ACLNode{}, err
	}
	return ACLNode{*w.ACLs}, nil
}

// ScramCredential is what a broker keeps of a password. It is a value in a user's configuration,
// under the name of the mechanism.
type ScramCredential struct {
	Salt, StoredKey, ServerKey []byte
	Iterations                 int32
}

// ScramMechanism is the name of a mechanism by Kafka's code (ScramMechanism), empty for others.
func ScramMechanism(code int8) string {
	switch code {
	case 1:
		return "SCRAM-SHA-256"
	case 2:
		return "SCRAM-SHA-512"
	}
	return ""
}

// Encode is the text of a credential (ScramCredentialUtils.credentialToString).
func (c ScramCredential) Encode() string {
	b64 := base64.StdEncoding.EncodeToString
	return fmt.Sprintf("salt=%s,stored_key=%s,server_key=%s,iterations=%d", b64(c.Salt), b64(c.StoredKey), b64(c.ServerKey), c.Iterations)
}

// DecodeScram reads the text of a credential.
func DecodeScram(text string) (c ScramCredential, err error) {
	seen := 0
	for part := range strings.SplitSeq(text, ",") {
		name, value, _ := strings.Cut(part, "=")
		var err error
		switch name {
		case "salt":
			c.Salt, err = base64.StdEncoding.DecodeString(value)
		case "stored_key":
			c.StoredKey, err = base64.StdEncoding.DecodeString(value)
		case "server_key":
			c.ServerKey, err = base64.StdEncoding.DecodeString(value)
		case "iterations":
			var n int64
			n, err = strconv.ParseInt(value, 10, 32)
			c.Iterations = int32(n)
		default:
			err = errors.New("unknown part")
		}
		if err != nil {
			return ScramCredential{}, fmt.Errorf("%w: scram credential, %q: %w", ErrZnode, name, err)
		}
		seen++
	}
	if seen != 4 {
		return ScramCredential{}, fmt.Errorf("%w: scram credential of %d parts", ErrZnode, seen)
	}
	return c, nil
}

// QuotaValue is how a quota stands in a configuration: as a whole number, but for those that
// Kafka defines as fractions (request_percentage, controller_mutation_rate), which have Java's
// form of one.
func QuotaValue(name string, v float64) string {
	if fraction := name == "request_percentage" || name == "controller_mutation_rate"; !fraction && v == float64(int64(v)) {
		return strconv.FormatInt(int64(v), 10)
	}
	s := strconv.FormatFloat(v, 'f', -1, 64)
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}

// PathQuota is where the quotas of clients are, by what they are of: a user, a client id, both, or
// an address. An empty name is the default of its kind; nil is not of it. ok is false for other
// combinations, which Kafka does not have.
func PathQuota(user, client, ip *string) (path string, ok bool) {
	entity := func(name *string) string {
		if *name == "" {
			return DefaultEntity
		}
		return Sanitize(*name)
	}
	switch {
	case ip != nil && user == nil && client == nil:
		return PathEntity("ips", entity(ip)), true
	case ip != nil:
		return "", false
	case user != nil && client != nil:
		return PathEntity("users", entity(user)+"/clients/"+entity(client)), true
	case user != nil:
		return PathEntity("users", entity(user)), true
	case client != nil:
		return PathEntity("clients", entity(client)), true
	}
	return "", false
}
