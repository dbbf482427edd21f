// Package evidence has only tests: those that show on a real server, end to end
// and with figures, what the documentation promises. Run them with -v to see the
// figures.
package evidence
