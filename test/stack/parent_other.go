//go:build !linux

package stack

import "syscall"

// dieWithParent does nothing: only Linux offers this, and only there do the
// components run.
func dieWithParent(*syscall.SysProcAttr) {}
