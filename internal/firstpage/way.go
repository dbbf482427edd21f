package firstpage

import (
	"fmt"
	"io"
	"strings"
)

// Way prints functions that a call has passed in the order in which their callers name them, from the function called
// first on, and each but once. With transport those that carry requests and messages are among them. A function that is
// reached by a goroutine, or by a value that was stored before the call, comes in the end.
func Way(out io.Writer, met []Function, first string, transport bool) error {
	w := way{out: out, met: met, transport: transport, seen: make([]bool, len(met))}
	for i, f := range met {
		if f.pkg == module+"/rlock" && f.Name == first {
			w.print(i, 0)
		}
	}
	if w.printed == 0 {
		return fmt.Errorf("the call has not passed %s", first)
	}
	used := make([]bool, len(met)) // by one that is not printed yet
	for i := range met {
		if !w.seen[i] {
			for _, callee := range w.callees(i) {
				used[callee] = used[callee] || callee != i
			}
		}
	}
	fmt.Fprintln(out, "\nBeside it, by goroutines and stored functions:")
	for _, again := range []bool{false, true} { // those in a circle come last
		for i := range met {
			if !w.seen[i] && (again || !used[i]) {
				w.print(i, 0)
			}
		}
	}
	return w.err
}

type way struct {
	out       io.Writer
	met       []Function
	transport bool
	seen      []bool // by function
	printed   int
	err       error
}

// print prints a function, and those that it names.
func (w *way) print(i, depth int) {
	w.seen[i] = true
	if f := w.met[i]; w.transport || !f.transport() {
		text := strings.Repeat("  ", depth) + f.pkg[strings.LastIndexByte(f.pkg, '/')+1:] + "." + f.Name + "  " + f.Place()
		if f.Doc != "" {
			text += "\n" + strings.Repeat("  ", depth+2) + f.Doc
		}
		if _, err := fmt.Fprintln(w.out, text); err != nil {
			w.err = err
		}
		w.printed++
		depth++
	}
	for _, callee := range w.callees(i) {
		if !w.seen[callee] {
			w.print(callee, depth)
		}
	}
}

// callees returns the functions that one names. A method of an interface stands for all methods of that name.
func (w *way) callees(i int) (all []int) {
	for _, r := range w.met[i].uses {
		for j, f := range w.met {
			if r.pkg == f.pkg && r.name == f.Name || r.pkg == "" && strings.HasSuffix(f.Name, ")."+r.name) {
				all = append(all, j)
			}
		}
	}
	return all
}
