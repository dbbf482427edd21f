//go:build !unix

package main

import "os"

// rawKeys does nothing.
func rawKeys(*os.File) (undo func()) { return func() {} }

// resizes never tells.
func resizes() (resized <-chan os.Signal, stop func()) { return nil, func() {} }

// suspensions never tells.
func suspensions() (suspended <-chan os.Signal, stop func()) { return nil, func() {} }

// suspend does nothing.
func suspend() {}

// size is that of the smallest usual terminal.
func size(*os.File) (columns, rows int) { return 80, 24 }
