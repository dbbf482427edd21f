-- Sets the hold count of an owner. The count is absolute, never a step: a
-- repeated or late delivery cannot count twice.
--
-- KEYS[1]  lock
-- ARGV[1]  lease, milliseconds; never shortens the rest of the lease
-- ARGV[2]  owner
-- ARGV[3]  hold count
--
-- reply    1  done
--          0  the owner does not hold the lock (nor does a key of another type)
if redis.call('type', KEYS[1]).ok ~= 'hash' or redis.call('hexists', KEYS[1], ARGV[2]) == 0 then
    return nothing(KEYS[1], ARGV[2])
end
-- PEXPIRE first and always: a server out of memory refuses HSET as a script's
-- first write but not as its second.
redis.call('pexpire', KEYS[1], math.max(redis.call('pttl', KEYS[1]), tonumber(ARGV[1])))
redis.call('hset', KEYS[1], ARGV[2], ARGV[3])
return 1
