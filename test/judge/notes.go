package judge

import "sync"

// notesLimit is enough for the head of a panic, which names its cause.
const notesLimit = 4096

// notes keeps the beginning of what the judge wrote to standard error: a panic's cause
// stands before its long stack.
type notes struct {
	mutex sync.Mutex
	text  []byte
}

// Write implements io.Writer. It never fails, so the judge never waits for it.
func (n *notes) Write(p []byte) (int, error) {
	n.mutex.Lock()
	defer n.mutex.Unlock()

	if room := notesLimit - len(n.text); room > 0 {
		n.text = append(n.text, p[:min(room, len(p))]...)
	}

	return len(p), nil
}

// String is the text behind a line break, or nothing.
func (n *notes) String() string {
	n.mutex.Lock()
	defer n.mutex.Unlock()

	if len(n.text) == 0 {
		return ""
	}

	return "\n" + string(n.text)
}
