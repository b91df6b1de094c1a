package config

import (
	"maps"
	"os"
	"strings"
	"testing"
)

func TestParseProperties(t *testing.T) {
	got := map[string]string{"kept": "1", "num.partitions": "1"}
	err := ParseProperties(got, []byte("# comment\n! comment\nnum.partitions=3\n  listeners = PLAINTEXT://:9092,\\\n    B://:9093  \n"+
		"a:b\nempty=\nnovalue\nsp\\ ace x\nunicode=\\u00e4\npassword=${env:SECRET}\ntwice=1\r\ntwice=2\r\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"kept": "1", "num.partitions": "3", "listeners": "PLAINTEXT://:9092,B://:9093  ", "a": "b", "empty": "", "novalue": "",
		"sp ace": "x", "unicode": "ä", "password": "${env:SECRET}", "twice": "2"}
	if !maps.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

func TestReadProperties(t *testing.T) {
	file := t.TempDir() + "/server.properties"
	if err := os.WriteFile(file, []byte("a=\\u12"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := ReadProperties(map[string]string{}, file); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("a broken file: %v", err)
	}
	if err := ReadProperties(map[string]string{}, file+".none"); !os.IsNotExist(err) {
		t.Errorf("a missing file: %v", err)
	}
}

func TestParseAssignment(t *testing.T) {
	if n, v, err := ParseAssignment("a.b = x=y"); n != "a.b" || v != "x=y" || err != nil {
		t.Error(n, v, err)
	}
	for _, s := range []string{"", "a", "=x", " =x"} {
		if _, _, err := ParseAssignment(s); err == nil {
			t.Errorf("%q is taken", s)
		}
	}
}

func FuzzProperties(f *testing.F) {
	for _, s := range []string{"a=b", "a = b\\\n c", "# x\n!y\na:b", "\\u00e4=\\u", "a=${a}", "=", "a\\=b=c", "\xef\xbb\xbfa=b"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		got := map[string]string{}
		if err := ParseProperties(got, text); err != nil {
			return
		}
		// Whatever a file says, the table takes it or names what is wrong.
		if _, err := New(Options{Settings: got}); err != nil && err.Error() == "" {
			t.Fatal("an error without a text")
		}
	})
}
