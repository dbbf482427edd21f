// Package docs has only tests: of the Markdown files in the repository. Their links
// lead somewhere, the tests that they name exist, their Go compiles, every option has
// its line, and the README is short.
package docs
