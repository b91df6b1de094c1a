//go:build clients

package integration

import (
	"path/filepath"
	"testing"
)

// perCodec is how many records each codec of each client gets here.
const perCodec = 10_000

func TestConfluentKafka(t *testing.T) { python(t, "confluent.py") }
func TestKafkaPython(t *testing.T)    { python(t, "kafka_python.py") }
func TestAIOKafka(t *testing.T)       { python(t, "aiokafka_client.py") }

func python(t *testing.T, script string) {
	dir := installed(t, "python")
	scenario(t, Start(t, "group.initial.rebalance.delay.ms=0"), perCodec, func(t *testing.T, addr string) client {
		return drive(t, addr, filepath.Join(dir, "python", "bin", "python"), filepath.Join("clients", script))
	})
}

func TestKafkaJS(t *testing.T) {
	dir := installed(t, "node")
	t.Setenv("OTTLA_NODE_MODULES", filepath.Join(dir, "node"))
	scenario(t, Start(t, "group.initial.rebalance.delay.ms=0"), perCodec, func(t *testing.T, addr string) client {
		return drive(t, addr, "node", filepath.Join("clients", "kafkajs.js"))
	})
}

func TestJava44(t *testing.T) { java(t, "4.4.0") }
func TestJava39(t *testing.T) { java(t, "3.9.1") }

func java(t *testing.T, release string) {
	command := javaCommand(t, release, "Driver")
	scenario(t, Start(t, "group.initial.rebalance.delay.ms=0"), perCodec, func(t *testing.T, addr string) client {
		return drive(t, addr, command...)
	})
}

// javaCommand runs a class of integration/java, or any other, with the jars of a Kafka release.
func javaCommand(t *testing.T, release, class string) []string {
	t.Helper()
	dir := filepath.Join(installed(t, "kafka-"+release), "kafka-"+release)
	return []string{"java", "-Xmx256M", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto",
		"-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-Dlog4j.configuration=file:" + filepath.Join("java", "log4j.properties"),
		"-cp", filepath.Join(dir, "classes") + ":" + filepath.Join(dir, "libs", "*"), class}
}
