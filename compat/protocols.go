package compat

// SecurityProtocols are Kafka's names of what a listener can speak. The place of each is its number on the wire
// (SecurityProtocol.id).
var SecurityProtocols = [...]string{"PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"}
