-- Removes a read/write lock of any owner, and passes the lock on. The script names no owner, and must
-- not be repeated blindly.
--
-- KEYS[1]  lock
-- KEYS[2]  queue; the script has one key only while the slot of a cluster moves
-- KEYS[3]  fencing counter; only for a fenced lock
-- ARGV[1]  PUBLISH, SPUBLISH, or both
-- ARGV[2]  unlock channel
-- ARGV[3]  beginning of the keys of read holds
--
-- reply    {1}              removed
--          {0}              the lock was free
--          {-1, key, type}  the key is no read/write lock
local l = {key = KEYS[1], queue = KEYS[2], counter = KEYS[3], commands = ARGV[1], unlocks = ARGV[2], prefix = ARGV[3], mode = 'none'}
local mode = look(l.key, '')
if stranger(mode) then
    return {-1, l.key, mode}
end
local removed = redis.call('del', l.key)
local ticket, _, record
if l.queue then
    ticket, _, record = first(l.queue)
end
if record then
    redis.call('zrem', l.queue, record)
end
if ticket then
    pass(l, nil, '+1')
elseif removed > 0 then
    announce(l.commands, l.unlocks, '+1')
end
return {removed}
