package stack

// T is what the functions here need of a test; [testing.TB] has it. A program that
// is no test, such as the quickstart, implements it itself. Fatal and Fatalf do not
// return.
type T interface {
	Helper()
	Logf(format string, args ...any)
	Errorf(format string, args ...any)
	Fatal(args ...any)
	Fatalf(format string, args ...any)
	Failed() bool
	// Cleanup registers a function that is called at the end, the last one first.
	Cleanup(f func())
	// TempDir is a new folder that is removed at the end.
	TempDir() string
}
