# A lock for bash: rlock hold has it, and releases it when this script ends, however it ends.
#
#	. hold.sh
#	hold nightly-report || exit
#	for file in *.csv; do
#		held || exit                     # the lock was lost
#		import "$file" "$TOKEN"          # the store refuses a smaller token
#	done
#	release
#
# bash closes the pipes in the programs that the script starts, so they do not keep the lock.

hold() { # NAME...
	local line
	coproc LOCK { exec rlock hold "$@"; }
	LOCKED=$LOCK_PID
	if ! read -r line <&"${LOCK[0]}"; then
		wait "$LOCKED"
		return # with the status of rlock: 75 if somebody else holds the lock
	fi
	TOKEN=${line#*\"token\":}
	TOKEN=${TOKEN%%,*}
}

held() { # after the loss there is a line to read, and then the end
	[ -n "${LOCK_PID-}" ] && ! read -r -t 0 <&"${LOCK[0]}"
}

release() { # status 79: the lock was lost before
	[ -z "${LOCK_PID-}" ] || exec {LOCK[1]}>&-
	wait "$LOCKED"
}
