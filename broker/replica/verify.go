package replica

// StartVerification begins to look up whether a producer's transaction has this partition, which
// this broker must lead; see log.Log.StartVerification. Errors: ErrNotLeader.
func (p *Partition) StartVerification(producerID int64, epoch int16, sequence int32) (guard uint64, err error) {
	l, err := p.Local(-1, true)
	if err != nil {
		return 0, err
	}
	return l.StartVerification(producerID, epoch, sequence), nil
}

// DropVerification forgets it again.
func (p *Partition) DropVerification(producerID int64, guard uint64) {
	if l := p.Log(); l != nil {
		l.DropVerification(producerID, guard)
	}
}
