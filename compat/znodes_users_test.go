package compat

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

// TestACLs compares with nodes that 3.9.1 wrote (shared/reference/znodes-kafka3.md), and holds the
// codes of Kafka's enumerations.
func TestACLs(t *testing.T) {
	const node = `{"acls":[{"principal":"User:alice","permissionType":"Allow","host":"*","operation":"Describe"},{"principal":"User:alice","permissionType":"Allow","host":"*","operation":"Read"}],"version":1}`
	n, err := DecodeACLs([]byte(node))
	if err != nil || string(n.Encode()) != node {
		t.Errorf("%v, %v", n, err)
	}
	read, ok1 := NewACL("User:alice", "*", 3, 3)
	describe, ok2 := NewACL("User:alice", "*", 8, 3)
	if !ok1 || !ok2 || string((ACLNode{[]ACL{read, describe, read}}).Encode()) != node { // a set
		t.Errorf("%v, %v", read, describe)
	}
	if a, ok := NewACL("User:eve", "127.0.0.9", 2, 2); !ok || a != (ACL{"User:eve", "Deny", "127.0.0.9", "All"}) {
		t.Errorf("%v", a)
	}
	for _, bad := range []struct {
		principal             string
		operation, permission int8
	}{{"User:a", 1, 3}, {"User:a", 16, 3}, {"User:a", 3, 1}, {"nobody", 3, 3}} {
		if a, ok := NewACL(bad.principal, "*", bad.operation, bad.permission); ok {
			t.Errorf("%v", a)
		}
	}
	for _, bad := range []string{"", "{}", `{"version":2,"acls":[]}`, `{"version":1}`} {
		if _, err := DecodeACLs([]byte(bad)); !errors.Is(err, ErrZnode) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func TestACLPaths(t *testing.T) {
	for _, c := range []struct {
		resource, pattern int8
		name, want        string
	}{
		{2, PatternLiteral, "orders", "/kafka-acl/Topic/orders"},
		{2, PatternPrefixed, "ord", "/kafka-acl-extended/prefixed/Topic/ord"},
		{3, PatternLiteral, "*", "/kafka-acl/Group/*"},
		{4, PatternLiteral, "kafka-cluster", "/kafka-acl/Cluster/kafka-cluster"},
		{5, PatternLiteral, "t", "/kafka-acl/TransactionalId/t"},
		{6, PatternLiteral, "t", "/kafka-acl/DelegationToken/t"},
		{7, PatternLiteral, "u", "/kafka-acl/User/u"},
		{3, PatternLiteral, "a/b", ""}, {1, PatternLiteral, "a", ""}, {2, 2, "a", ""}, {2, PatternLiteral, "", ""},
	} {
		if got, ok := PathACL(c.resource, c.pattern, c.name); got != c.want || ok != (c.want != "") {
			t.Errorf("%v: %q, %v", c, got, ok)
		}
	}
	paths := ACLPaths()
	for _, p := range []string{"/kafka-acl", "/kafka-acl/User", "/kafka-acl-extended/prefixed/TransactionalId", "/kafka-acl-changes", "/kafka-acl-extended-changes"} {
		if !slices.Contains(paths, p) {
			t.Errorf("no %s", p)
		}
	}
	if len(paths) != 17 {
		t.Errorf("%d paths: %q", len(paths), paths)
	}
}

func TestScram(t *testing.T) {
	const text = "salt=czR4cDZnNm14bGdzMndpNjB4OWV2MXNkdQ==,stored_key=KaeGdWDd+OhxRMJ3hi5yhad6BdOJVFBgEx+c2kmZHCw=,server_key=ijY1scsOk8QTQmM4fI+a2++XWnu+FyxzPnjpwqVnMKc=,iterations=4096"
	c, err := DecodeScram(text)
	if err != nil || c.Encode() != text || c.Iterations != 4096 || len(c.StoredKey) != 32 {
		t.Errorf("%v, %v", c, err)
	}
	for _, bad := range []string{"", "salt=YQ==", text + ",more=1", strings.Replace(text, "4096", "many", 1), strings.Replace(text, "salt=c", "salt=!", 1)} {
		if _, err := DecodeScram(bad); !errors.Is(err, ErrZnode) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	if ScramMechanism(1) != "SCRAM-SHA-256" || ScramMechanism(2) != "SCRAM-SHA-512" || ScramMechanism(0) != "" {
		t.Error("mechanisms")
	}
}

func TestQuotas(t *testing.T) {
	name := func(s string) *string { return &s }
	for _, c := range []struct {
		user, client, ip *string
		want             string
	}{
		{name("alice"), nil, nil, "/config/users/alice"},
		{name(""), nil, nil, "/config/users/<default>"},
		{name("a b"), name("app/1"), nil, "/config/users/a%20b/clients/app%2F1"},
		{name(""), name(""), nil, "/config/users/<default>/clients/<default>"},
		{nil, name("app"), nil, "/config/clients/app"},
		{nil, nil, name("127.0.0.1"), "/config/ips/127.0.0.1"},
		{name("alice"), nil, name(""), ""}, {nil, nil, nil, ""},
	} {
		if got, ok := PathQuota(c.user, c.client, c.ip); got != c.want || ok != (c.want != "") {
			t.Errorf("%q, %v; want %q", got, ok, c.want)
		}
	}
	for _, c := range []struct {
		name string
		v    float64
		want string
	}{{"producer_byte_rate", 1048576, "1048576"}, {"consumer_byte_rate", 5e9, "5000000000"}, {"request_percentage", 50, "50.0"}, {"controller_mutation_rate", 0.25, "0.25"}, {"producer_byte_rate", 1.5, "1.5"}} {
		if got := QuotaValue(c.name, c.v); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

func FuzzUsers(f *testing.F) {
	f.Add(`{"acls":[{"principal":"User:bob","permissionType":"Allow","host":"*","operation":"Write"}],"version":1}`)
	f.Add("salt=YQ==,stored_key=YQ==,server_key=YQ==,iterations=4096")
	f.Fuzz(func(t *testing.T, s string) {
		if n, err := DecodeACLs([]byte(s)); err == nil {
			if again, err := DecodeACLs(n.Encode()); err != nil || len(again.ACLs) > len(n.ACLs) {
				t.Errorf("%v, %v, %v", n, again, err)
			}
		}
		if c, err := DecodeScram(s); err == nil {
			if again, err := DecodeScram(c.Encode()); err != nil || again.Iterations != c.Iterations {
				t.Errorf("%v, %v", again, err)
			}
		}
	})
}
