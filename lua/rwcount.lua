-- Sets the hold counts of an owner of a read/write lock. The counts are absolute. A writer
-- without a write hold becomes a reader, and readers in front of the queue enter.
--
-- KEYS[1]  lock
-- KEYS[2]  queue
-- KEYS     fencing counter, the owner's read holds, as many as it shall have: for servers that
--          want them declared; not while the slot of a cluster moves: the script may have one key
--          only then
-- ARGV[1]  lease, milliseconds; never shortens the rest of the lease
-- ARGV[2]  owner
-- ARGV[3]  beginning of the keys of read holds
-- ARGV[4]  hold count of writes
-- ARGV[5]  hold count of reads
-- ARGV[6]  PUBLISH, SPUBLISH, or both
-- ARGV[7]  unlock channel
-- ARGV[8]  place of the counter in KEYS, 0 for a lock without tokens
--
-- reply    {1, error, lines, more}  done; see rwrelease.lua
--          0  the owner does not hold the lock, or not for writing any more: no owner writes
--             again, and a request that says so has been overtaken
local owner, writes, reads = ARGV[2], tonumber(ARGV[4]), tonumber(ARGV[5])
local l = {key = KEYS[1], queue = KEYS[2], counter = KEYS[tonumber(ARGV[8])], prefix = ARGV[3], commands = ARGV[6], unlocks = ARGV[7]}
local writing = owner .. ':write'
local _, shared, exclusive = look(l.key, owner)
if shared + exclusive == 0 or writes > 0 and exclusive == 0 then
    return nothing(l.key, writing)
end
extend(l.key, l.prefix, owner, shared, reads, tonumber(ARGV[1]))
for n = reads + 1, shared do
    drop(hold(l.prefix, owner, n))
end
if reads > 0 then
    redis.call('hset', l.key, owner, reads)
else
    redis.call('hdel', l.key, owner)
end
if writes > 0 then
    redis.call('hset', l.key, writing, writes)
    return {1}
elseif exclusive == 0 then
    return {1}
end
redis.call('hset', l.key, 'mode', 'read')
redis.call('hdel', l.key, writing)
l.mode = 'read'
local own, failure, lines, count = client(owner), nil, nil, 0
local head, score
if l.queue then
    head, score = first(l.queue)
end
if not head then
    failure = refusal(announce(l.commands, l.unlocks, '+1'))
elseif not foreigners(l.unlocks, l.commands, '+1') then
    local _, text, refused, granted = serve(l, own, nil, nil, true)
    failure, lines, count = refused and refused.err, text, granted
elseif sharedOf(score) == 1 then
    lines, failure = prompt(l.queue, l.commands, own, portion)
end
return {1, failure or '', lines or '', count == portion and 1 or 0}
