package stack

import "syscall"

// dieWithParent has the kernel kill a child when the test ends in whatever way, a
// panic or a kill of the test itself included.
func dieWithParent(attributes *syscall.SysProcAttr) { attributes.Pdeathsig = syscall.SIGKILL }
