-- Ends an owner's grant of a read/write lock, whatever the hold counts say, and takes back the
-- owner's intent to write.
--
-- KEYS[1]  lock
-- KEYS     writer's intent, the owner's first read hold: for servers that want them
--          declared; not while the slot of a cluster moves
-- ARGV[1]  owner
-- ARGV[2]  beginning of the keys of read holds
-- ARGV[3]  PUBLISH, SPUBLISH, or both
-- ARGV[4]  channel
-- ARGV[5]  writer's intent
--
-- reply    {1, receivers}  released; receivers 0 if there was nothing to announce
--          {1, -1, error}  released; the server refused the message
--          {0}             the owner does not hold the lock
local _, shared, exclusive = look(KEYS[1], ARGV[1])
if shared + exclusive == 0 then
    if redis.pcall('get', ARGV[5]) == ARGV[1] then
        redis.call('del', ARGV[5])
        announce(ARGV[3], ARGV[4], '0')
    end
    return {0}
end

-- occupied tells whether readers are left, whose last one the lock must outlive.
-- As Redisson does, it shortens the lock's TTL to that, but not if a reader picked
-- at random lasts half as long: those that come and go must not cost the more, the
-- more there are.
local function occupied()
    local ttl = redis.call('pttl', KEYS[1])
    local some = redis.call('hrandfield', KEYS[1])
    if some == 'mode' then
        some = redis.call('hrandfield', KEYS[1])
    end
    local one = some ~= 'mode' and redis.pcall('pttl', hold(ARGV[2], some, 1))
    if type(one) == 'number' and one >= ttl / 2 then
        return true
    end
    local _, last = readers(KEYS[1], ARGV[2])
    if last and last >= 0 and last < ttl then
        redis.call('pexpire', KEYS[1], math.max(last, 1))
    end
    return last
end

for n = 1, shared do
    drop(hold(ARGV[2], ARGV[1], n))
end
local message = '0'
if exclusive > 0 then
    message = '1'
    retract(ARGV[5]) -- whoever waits now gets a chance; who still waits after it says so again
else
    redis.call('hdel', KEYS[1], ARGV[1])
    if occupied() then
        return {1, 0}
    end
end
redis.call('del', KEYS[1])
local receivers = announce(ARGV[3], ARGV[4], message)
if type(receivers) == 'table' then
    return {1, -1, receivers.err}
end
return {1, receivers}
