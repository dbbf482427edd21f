// A lock for Node: rlock hold has it, and releases it when this program ends, however it ends.
//
//	await hold(["nightly-report"], async ({ token, signal }) => {
//		for await (const row of rows({ signal })) {   // ends when the lock is lost
//			await write(row, token)                   // the store refuses a smaller token
//		}
//	})

import { spawn } from 'node:child_process'
import { createInterface } from 'node:readline'

export async function hold(names, work, options = []) {
	const rlock = spawn('rlock', ['hold', ...options, '--', ...names], { stdio: ['pipe', 'pipe', 'inherit'] })
	const ended = new Promise((resolve, reject) => rlock.on('error', reject).on('close', resolve))
	ended.catch(() => {}) // it is looked at below
	rlock.stdin.on('error', () => {}) // rlock may have ended before
	const lost = new AbortController()
	let released = false
	const lines = createInterface({ input: rlock.stdout })
	const first = new Promise((resolve) => {
		lines.on('close', () => {
			if (!released) lost.abort(new Error('rlock hold has ended')) // it was killed, and nobody renews the lock
			resolve(null)
		})
		lines.on('line', (line) => {
			const said = JSON.parse(line)
			if (said.lost) lost.abort(new Error(said.lost))
			else resolve(said)
		})
	})
	const held = await first
	if (held === null) throw new Error(`rlock hold has ended with ${await ended}`) // why is on stderr
	try {
		return await work({ ...held, signal: lost.signal })
	} finally {
		released = true
		rlock.stdin.end() // releases the lock
		const code = await ended
		lost.signal.throwIfAborted()
		if (code !== 0) throw new Error(`rlock hold has ended with ${code}`)
	}
}
