package stack

// Program is a program that works with a cluster and can be stopped and started
// again.
type Program struct {
	process *process
	ready   string
}

// Program prepares the program at a path, which Start then starts: with these
// arguments and, besides the test's own environment, these NAME=VALUE pairs. It is
// ready when a GET of the URL ready is answered with 200. It is killed when the
// test ends; the end of its log is printed if the test failed.
func (c *Cluster) Program(t T, path, ready string, args []string, env ...string) *Program {
	t.Helper()

	p := &Program{process: newProcess(t, c.folder, path, args...), ready: ready}
	p.process.env = env

	return p
}

// Start starts the program, also after Stop or Kill, and returns when it is ready.
func (p *Program) Start(t T) { t.Helper(); p.process.mustStart(t, answers(p.ready)) }

// Stop asks the program to end, and kills it if it is still there after stopLimit.
func (p *Program) Stop(t T) { t.Helper(); must(t, p.process.stop()) }

// Kill ends the program as a crash would.
func (p *Program) Kill(t T) { t.Helper(); must(t, p.process.kill()) }

// Tail is the end of what the program has written to its output, of all its runs.
func (p *Program) Tail() string { return p.process.tail() }

// Running says whether the program has not ended.
func (p *Program) Running() bool { return p.process.running() }

// PID is the number of the process, while it runs.
func (p *Program) PID() int { return p.process.command.Process.Pid }
