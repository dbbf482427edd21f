// Package docs has only tests: of the Markdown files in the repository. Their links
// lead somewhere, the tests that they name exist, their Go compiles, every option has
// its line, each promise has a test, the README is short, and the pages use the words
// of the field.
package docs
