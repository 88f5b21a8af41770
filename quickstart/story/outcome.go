package story

import "fmt"

// Outcome is what a step saw.
type Outcome struct {
	// Title is the step's.
	Title string
	// Faults are what is not as it should be; none in a good run.
	Faults []string
	// Verdicts are the tables of the step, in their order.
	Verdicts []Verdicts
	// Lines are its texts.
	Lines []string

	// printer is told of everything as it comes.
	printer *Printer
}

// say adds a line.
func (o *Outcome) say(format string, args ...any) {
	line := fmt.Sprintf(format, args...)
	o.Lines = append(o.Lines, line)
	o.printer.line(line)
}

func (o *Outcome) show(v Verdicts) {
	o.Verdicts = append(o.Verdicts, v)
	o.printer.verdicts(v)
}

// check makes a fault of what does not hold.
func (o *Outcome) check(holds bool, format string, args ...any) {
	if holds {
		return
	}

	fault := fmt.Sprintf(format, args...)
	o.Faults = append(o.Faults, fault)
	o.printer.fault(fault)
}
