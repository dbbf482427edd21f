-- Sets the hold counts of an owner of a read/write lock. The counts are absolute. A writer
-- without a write hold becomes a reader.
--
-- KEYS[1]  lock
-- KEYS     writer's intent, the owner's read holds, as many as it shall have: for servers
--          that want them declared; not while the slot of a cluster moves
-- ARGV[1]  lease, milliseconds; never shortens the rest of the lease
-- ARGV[2]  owner
-- ARGV[3]  beginning of the keys of read holds
-- ARGV[4]  hold count of writes
-- ARGV[5]  hold count of reads
-- ARGV[6]  PUBLISH, SPUBLISH, or both
-- ARGV[7]  channel
-- ARGV[8]  writer's intent
--
-- reply    1  done
--          0  the owner does not hold the lock, or not for writing any more: no owner writes
--             again, and a request that says so has been overtaken
local writing = ARGV[2] .. ':write'
local writes, reads = tonumber(ARGV[4]), tonumber(ARGV[5])
local _, shared, exclusive = look(KEYS[1], ARGV[2])
if shared + exclusive == 0 or writes > 0 and exclusive == 0 then
    return 0
end
extend(KEYS[1], ARGV[3], ARGV[2], shared, reads, tonumber(ARGV[1]))
for n = reads + 1, shared do
    drop(hold(ARGV[3], ARGV[2], n))
end
if reads > 0 then
    redis.call('hset', KEYS[1], ARGV[2], reads)
else
    redis.call('hdel', KEYS[1], ARGV[2])
end
if writes > 0 then
    redis.call('hset', KEYS[1], writing, writes)
elseif exclusive > 0 then
    redis.call('hset', KEYS[1], 'mode', 'read')
    redis.call('hdel', KEYS[1], writing)
    retract(ARGV[8])
    announce(ARGV[6], ARGV[7], '1')
end
return 1
