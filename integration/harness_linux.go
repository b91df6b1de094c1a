package integration

import (
	"os/exec"
	"syscall"
)

// endWithParent lets no process outlive a test process that was killed.
func endWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
