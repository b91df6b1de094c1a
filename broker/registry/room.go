package registry

// roomAhead is how much of the disk the registry's file holds beyond what it uses. Logs are what fills
// a disk, and to make room topics have to be deleted, which the registry must have room to write.
const roomAhead = 1 << 20

// keepRoom takes that room, or takes it again once half of it is used. size is what the file uses. It
// is a wish: without it the registry is as full as the disk.
func (f *file) keepRoom(size int64) {
	if size+roomAhead/2 <= f.room {
		return
	}
	if err := reserve(f.db.Path(), size+roomAhead); err == nil {
		f.room = size + roomAhead
	}
}
