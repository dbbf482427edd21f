-- Keeps a ticket alive, in its place.
--
-- KEYS[4]  fencing counter; only for a fenced lock
-- ARGV[1]  how long the ticket lives, milliseconds
-- ARGV[6]  how long queue and tickets are kept, milliseconds
--
-- reply    {1, granted, time}  granted 1 if the lock is the owner's
--          {0, 0, 0}           there is no such ticket
local function granted()
    return redis.pcall('hexists', KEYS[1], ARGV[2]) == 1 and 1 or 0
end

local claim = string.match(redis.call('hget', KEYS[3], ARGV[2]) or '', ' (%d+)$')
if not claim then
    return granted() == 1 and {1, 1, now} or {0, 0, 0}
end
-- PEXPIRE first: a server out of memory refuses HSET as a script's first write.
redis.call('pexpire', KEYS[2], ARGV[6])
redis.call('pexpire', KEYS[3], ARGV[6])
redis.call('hset', KEYS[3], ARGV[2], text(now + ARGV[1] * 1000) .. ' ' .. claim)
if redis.call('exists', KEYS[1]) == 0 then -- the holder has died
    advance(KEYS[4])
end
return {1, granted(), now}
