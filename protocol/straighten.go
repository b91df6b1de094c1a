package protocol

const keyStopReplica = 5

// Straighten puts the fields of a request into the order in which kmsg reads them, in place, where that is not
// Kafka's: StopReplica v4 has isKRaftController before the controller's epoch, kmsg has it behind. What
// is too short stays as it is.
func Straighten(key, version int16, body []byte) {
	const at, size = 4, 5 // behind the controller's id: a truth value, and four bytes of the epoch
	if key == keyStopReplica && version == 4 && len(body) >= at+size {
		kraft := body[at]
		copy(body[at:], body[at+1:at+size])
		body[at+size-1] = kraft
	}
}
