package group

import (
	"errors"
	"fmt"
)

// What groups answer, beside the errors of package coordinator.
var (
	ErrInvalidGroupID        = errors.New("the group id is empty")
	ErrInvalidSessionTimeout = errors.New("the session timeout is outside group.min.session.timeout.ms and group.max.session.timeout.ms")
	ErrUnknownMember         = errors.New("the group does not know this member")
	ErrFencedInstance        = errors.New("another member has taken over this group.instance.id")
	ErrMemberIDRequired      = errors.New("join again with the member id of this answer")
	ErrGroupFull             = errors.New("the group has group.max.size members")
	ErrInconsistentProtocol  = errors.New("the group's members have another protocol type or no protocol in common with this one")
	ErrIllegalGeneration     = errors.New("the generation is not the group's")
	ErrRebalanceInProgress   = errors.New("the group is rebalancing")
	ErrGroupNotFound         = errors.New("there is no such group")
	ErrNonEmptyGroup         = errors.New("the group has members")
	ErrSubscribed            = errors.New("the group is subscribed to the topic")
	ErrMetadataTooLarge      = errors.New("the metadata of the offset is longer than offset.metadata.max.bytes")
	ErrUnstableOffset        = errors.New("an open transaction has offsets for the partition")
	ErrTxnEnded              = errors.New("the transaction that the offsets belong to has ended")
	ErrFencedMemberEpoch     = errors.New("the member is not in this epoch; it must give up its partitions and join again")
	ErrUnreleasedInstance    = errors.New("another member still has this group.instance.id")
	ErrStaleMemberEpoch      = errors.New("the member is in another epoch")
	ErrUnsupportedAssignor   = errors.New("the assignor is not one of group.consumer.assignors")
	ErrUnsupportedVersion    = errors.New("members of consumer groups commit with OffsetCommit v9 or later")
	ErrInvalidRegex          = errors.New("the regular expression of the subscription is not one of RE2")
	ErrInvalidRequest        = errors.New("the request is invalid")
	ErrNotConsumerGroup      = errors.New("there is no such consumer group")
	ErrStaleMarker           = errors.New("the marker ended the transaction before, and comes a second time")
)

// reason is one of the errors above with what Kafka says of the case, for the fields of answers that hold a text.
type reason struct {
	kind error
	text string
}

func (e *reason) Error() string { return e.text }
func (e *reason) Unwrap() error { return e.kind }

func because(kind error, format string, args ...any) error {
	return &reason{kind, fmt.Sprintf(format, args...)}
}

func notOwner(instance, member, owner string) error {
	return because(ErrFencedInstance, "Static member %s with instance id %s was fenced by member %s.", member, instance, owner)
}

func noInstance(instance string) error {
	return because(ErrUnknownMember, "Instance id %s is unknown.", instance)
}

func notConsumer(group string) error {
	return because(ErrNotConsumerGroup, "Group %s is not a consumer group.", group)
}

func notFound(group string) error { return because(ErrGroupNotFound, "Group %s not found.", group) }

func notMember(group, member string) error {
	return because(ErrUnknownMember, "Member %s is not a member of group %s.", member, group)
}
