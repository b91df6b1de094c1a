package config

import (
	"fmt"
	"os"
	"strings"

	"github.com/magiconair/properties"
)

// ReadProperties reads a file of Kafka's form (server.properties) into dst, over what is there.
func ReadProperties(dst map[string]string, path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := ParseProperties(dst, text); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// ParseProperties reads java.util.Properties text (key=value lines, # and ! comments, line
// continuation, \u escapes) into dst. ${...} is not filled in: Kafka takes it as it stands. Of
// a key that stands twice the last value counts. The text is UTF-8, where Java's would be
// ISO 8859-1.
func ParseProperties(dst map[string]string, text []byte) error {
	loader := properties.Loader{Encoding: properties.UTF8, DisableExpansion: true}
	p, err := loader.LoadBytes(text)
	if err != nil {
		return err
	}
	p.DisableExpansion = true
	for _, k := range p.Keys() {
		v, _ := p.Get(k)
		dst[k] = v
	}
	return nil
}

// ParseAssignment splits name=value, as --set takes it.
func ParseAssignment(s string) (name, value string, err error) {
	name, value, ok := strings.Cut(s, "=")
	if name = trim(name); !ok || name == "" {
		return "", "", fmt.Errorf("%q is not name=value", s)
	}
	return name, trim(value), nil
}
