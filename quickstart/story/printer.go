package story

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Printer writes the story for people.
type Printer struct {
	out    io.Writer
	over   <-chan struct{}
	colour bool
	begin  time.Time
}

// NewPrinter writes to out, with colours if it is a terminal and NO_COLOR is not set. When
// over is closed it falls silent: what a step sees while everything is stopped means
// nothing. It can be nil.
func NewPrinter(out io.Writer, over <-chan struct{}) *Printer {
	p := &Printer{out: out, over: over, begin: time.Now()}
	if file, ok := out.(*os.File); ok && os.Getenv("NO_COLOR") == "" {
		info, err := file.Stat()
		p.colour = err == nil && info.Mode()&os.ModeCharDevice != 0
	}

	return p
}

// Write is that of io.Writer.
func (p *Printer) Write(text []byte) (int, error) {
	select {
	case <-p.over:
		return len(text), nil
	default:
		return p.out.Write(text)
	}
}

// Styles of a terminal (ECMA-48, select graphic rendition).
const (
	bold  = "1"
	red   = "31"
	green = "32"
	faint = "2"
)

func (p *Printer) styled(style, text string) string {
	if !p.colour {
		return text
	}

	return "\x1b[" + style + "m" + text + "\x1b[0m"
}

// Starting comes before the first Started.
func (p *Printer) Starting() {
	fmt.Fprintf(p, "%s\n\n", p.styled(bold, "0. What is started"))
}

// Told ends the story.
func (p *Printer) Told(asItShouldBe bool) {
	if asItShouldBe {
		fmt.Fprintf(p, "\n%s\n", p.styled(green, "Everything was as it should be."))
	}
}

// Staying says how to reach what is left running.
func (p *Printer) Staying(w *World) {
	enter := fmt.Sprintf("nsenter -t %d -n", os.Getpid())
	if !privileged() {
		enter = fmt.Sprintf("nsenter -t %d -U -n --preserve-credentials", os.Getpid())
	}

	fmt.Fprintf(p, `
Everything runs until you press Ctrl-C. From another terminal:

  %[1]s kubectl --kubeconfig %[2]s apply -f quickstart/policies/team-a.yaml
  %[1]s %[3]s
`, enter, w.Kubeconfig(), strings.Join(w.command(w.caller(teamA), "'"+callOf("add").text()+"'"), " "))
}

// Step begins a step.
func (p *Printer) Step(number int, title string) {
	fmt.Fprintf(p, "\n%s\n\n", p.styled(bold, fmt.Sprintf("%d. %s", number, title)))
}

// Started writes that something has been started, and how long that took since the last
// such line.
func (p *Printer) Started(what string) {
	fmt.Fprintf(p, "  %s  %s\n", p.lap(), what)
}

// Took ends a step.
func (p *Printer) Took() { fmt.Fprintf(p, "\n%s\n", p.styled(faint, "   took "+p.lap())) }

// lap is the time since the last lap.
func (p *Printer) lap() string {
	took := time.Since(p.begin)
	p.begin = time.Now()

	return fmt.Sprintf("%5.1f s", took.Seconds())
}

func (p *Printer) line(text string) {
	fmt.Fprintln(p, "   "+strings.ReplaceAll(text, "\n", "\n   "))
}

func (p *Printer) fault(text string) {
	fmt.Fprintln(p, "   "+p.styled(red, "NOT AS IT SHOULD BE: "+text))
}

// refusal is how a caller was refused.
type refusal struct {
	status  int
	message string
}

// verdicts writes a table, and below it what MCP clients read for each kind of refusal.
func (p *Printer) verdicts(v Verdicts) {
	width := utf8.RuneCountInString("caller")
	for _, row := range v.Rows {
		width = max(width, utf8.RuneCountInString(row.Caller))
	}

	p.line(fmt.Sprintf("%-*s  %s", width, "caller", strings.Join(v.Calls, "  ")))

	var order []refusal

	examples := map[refusal]string{}

	for _, row := range v.Rows {
		line := fmt.Sprintf("%-*s", width, row.Caller)
		gap := 0

		for i, cell := range row.Cells {
			text, style := "yes", green
			if !cell.Allowed {
				text, style = strconv.Itoa(cell.Status), red

				kind := refusal{cell.Status, cell.Message}
				if _, known := examples[kind]; !known {
					order = append(order, kind)
					examples[kind] = fmt.Sprintf("%s, %s: %s", row.Caller, v.Calls[i], cell.Error)
				}
			}

			line += strings.Repeat(" ", gap) + "  " + p.styled(style, text)
			gap = max(0, len(v.Calls[i])-len(text))
		}

		p.line(line)
	}

	for _, kind := range order {
		p.line(fmt.Sprintf("%d: %q\n     to an MCP client, such as %s", kind.status, kind.message, examples[kind]))
	}
}

// privileged reports whether hack/loopback could do without a user namespace. In one
// the first number of the machine's users is another.
func privileged() bool {
	text, err := os.ReadFile("/proc/self/uid_map")
	fields := strings.Fields(string(text))

	return err == nil && len(fields) >= 2 && fields[0] == "0" && fields[1] == "0"
}
