package schema

import (
	"encoding/base64"
	"math"
	"strconv"
	"unicode/utf8"
)

// AppendJSON appends the message in the form in which Kafka 4.4's kafka-dump-log prints it
// (DumpLogSegments and the generated JsonConverters): type or version and then the data; of a
// control record the data alone.
func (m Message) AppendJSON(dst []byte) []byte {
	switch m.kind {
	case kindRecord:
		dst = append(append(append(dst, `{"type":"`...), recordType(m.Name)...), `","version":`...)
		dst = append(strconv.AppendInt(dst, int64(m.Version), 10), `,"data":`...)
	case kindKey:
		dst = append(strconv.AppendInt(append(dst, `{"type":"`...), int64(m.Type), 10), `","data":`...)
	case kindValue, kindGroup, kindTxnState:
		dst = append(strconv.AppendInt(append(dst, `{"version":"`...), int64(m.Version), 10), `","data":`...)
	case kindData:
		return m.Fields.AppendJSON(dst)
	}
	p := printer{kind: m.kind, consumers: m.kind == kindGroup && As[string](m.Fields, "protocolType") == "consumer"}
	return append(p.structure(dst, m.Fields), '}')
}

// AppendJSON appends an object of the fields.
func (s Struct) AppendJSON(dst []byte) []byte {
	p := printer{kind: kindData}
	return p.structure(dst, s)
}

// recordType is Kafka's MetadataRecordType of a name: TOPIC_RECORD of TopicRecord.
func recordType(name string) []byte {
	var b []byte
	for i := range len(name) {
		c := name[i]
		switch {
		case c >= 'a' && c <= 'z':
			c -= 'a' - 'A'
		case i > 0:
			b = append(b, '_')
		}
		b = append(b, c)
	}
	return b
}

type printer struct {
	kind      messageKind
	consumers bool // subscription and assignment are those of consumers
}

func (p *printer) structure(dst []byte, s Struct) []byte {
	dst = append(dst, '{')
	for i, f := range s {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(append(append(dst, '"'), f.Name...), `":`...)
		dst = p.field(dst, f)
	}
	return append(dst, '}')
}

// field appends a value, some of them in the words of the tool.
func (p *printer) field(dst []byte, f Field) []byte {
	if state, ok := f.Value.(int8); ok && p.kind == kindTxnState && f.Name == "transactionStatus" {
		return appendString(dst, txnState(state))
	}
	if b, ok := f.Value.([]byte); ok && p.consumers {
		if s, ok := consumerBytes(f.Name, b); ok {
			return s.AppendJSON(dst)
		}
	}
	return p.value(dst, f.Value)
}

// consumerBytes reads what a member of a classic group of consumers has sent or been given. What
// is not readable is printed as the bytes that it is.
func consumerBytes(name string, b []byte) (Struct, bool) {
	id := int16(0)
	switch name {
	case "subscription":
	case "assignment":
		id = 1
	default:
		return nil, false
	}
	d := decoder{b: b}
	m, err := d.message(consumerProtocol, kindData, id, d.int16())
	return m.Fields, err == nil
}

// txnState is the word for a transactionStatus (TransactionState).
func txnState(state int8) string {
	names := [...]string{"Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead", "PrepareEpochFence"}
	if state < 0 || int(state) >= len(names) {
		return strconv.Itoa(int(state))
	}
	return names[state]
}

func (p *printer) value(dst []byte, v any) []byte {
	switch v := v.(type) {
	case nil:
		return append(dst, "null"...)
	case bool:
		return strconv.AppendBool(dst, v)
	case int8:
		return strconv.AppendInt(dst, int64(v), 10)
	case int16:
		return strconv.AppendInt(dst, int64(v), 10)
	case uint16:
		return strconv.AppendInt(dst, int64(v), 10)
	case int32:
		return strconv.AppendInt(dst, int64(v), 10)
	case int64:
		return strconv.AppendInt(dst, v, 10)
	case float64:
		return AppendDouble(dst, v)
	case string:
		return appendString(dst, v)
	case []byte:
		dst = append(dst, '"')
		return append(base64.StdEncoding.AppendEncode(dst, v), '"')
	case [16]byte:
		dst = append(dst, '"')
		return append(base64.RawURLEncoding.AppendEncode(dst, v[:]), '"')
	case Struct:
		return p.structure(dst, v)
	case []int16:
		return appendList(p, dst, v)
	case []int32:
		return appendList(p, dst, v)
	case []string:
		return appendList(p, dst, v)
	case [][16]byte:
		return appendList(p, dst, v)
	case []Struct:
		return appendList(p, dst, v)
	}
	return dst
}

func appendList[T any](p *printer, dst []byte, list []T) []byte {
	dst = append(dst, '[')
	for i, v := range list {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = p.value(dst, v)
	}
	return append(dst, ']')
}

// appendString escapes as Jackson: control characters, quotes and backslashes, nothing else.
func appendString(dst []byte, s string) []byte {
	const hex = "0123456789ABCDEF"
	dst = append(dst, '"')
	for _, r := range s { // a byte that is no UTF-8 comes as U+FFFD, as in Java
		switch {
		case r == '"' || r == '\\':
			dst = append(dst, '\\', byte(r))
		case r == '\b':
			dst = append(dst, `\b`...)
		case r == '\f':
			dst = append(dst, `\f`...)
		case r == '\n':
			dst = append(dst, `\n`...)
		case r == '\r':
			dst = append(dst, `\r`...)
		case r == '\t':
			dst = append(dst, `\t`...)
		case r < ' ':
			dst = append(dst, '\\', 'u', '0', '0', hex[r>>4], hex[r&15])
		default:
			dst = utf8.AppendRune(dst, r)
		}
	}
	return append(dst, '"')
}

// AppendDouble appends a number as Java's Double.toString: 1048576.0, 1.0E7. Kafka writes quotas
// in this form. What is no number is a word in quotes, as Jackson has it.
func AppendDouble(dst []byte, v float64) []byte {
	switch {
	case math.IsNaN(v):
		return append(dst, `"NaN"`...)
	case math.IsInf(v, 1):
		return append(dst, `"Infinity"`...)
	case math.IsInf(v, -1):
		return append(dst, `"-Infinity"`...)
	case v == 0:
		if math.Signbit(v) {
			dst = append(dst, '-')
		}
		return append(dst, "0.0"...)
	}
	if abs := math.Abs(v); abs >= 1e-3 && abs < 1e7 {
		start := len(dst)
		dst = strconv.AppendFloat(dst, v, 'f', -1, 64)
		for _, c := range dst[start:] {
			if c == '.' {
				return dst
			}
		}
		return append(dst, ".0"...)
	}
	text := strconv.AppendFloat(nil, v, 'e', -1, 64) // 1.5e+07
	for i, c := range text {
		if c != 'e' {
			continue
		}
		mantissa, exponent := text[:i], text[i+1:]
		dst = append(dst, mantissa...)
		if len(mantissa) < 3 { // one digit, perhaps behind a sign
			dst = append(dst, ".0"...)
		}
		n, _ := strconv.Atoi(string(exponent))
		return strconv.AppendInt(append(dst, 'E'), int64(n), 10)
	}
	return append(dst, text...)
}
