// Package api holds the exported API to what is written down in the directory
// api of the module, a file for each package. After a deliberate change:
//
//	make api
package api
