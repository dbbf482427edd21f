-- Grants several locks, each to an owner of its own, if all are free; otherwise none.
-- Tickets in the queues of these locks are passed over.
--
-- KEYS[1…n]    locks, all different
-- KEYS[n+1…]   fencing counters
-- ARGV[1]      n
-- ARGV[3i-1…]  lease of lock i, milliseconds; owner, a new one for every grant;
--              place of its counter in KEYS, 0 for an unfenced lock
--
-- reply    {1, token, ...}  acquired; in order, token 0 for an unfenced lock
--          {0, i, pttl, owner}  lock i is held; the rest of the lease, -1 without an end
--          {-1, key, type}  the key is no lock
local locks = {}
for i = 1, tonumber(ARGV[1]) do
    local what, owner, count = kind(KEYS[i])
    if what ~= 'none' and what ~= 'lock' then
        return {-1, KEYS[i], what}
    end
    local held = owner == ARGV[3 * i] -- the answer to an earlier delivery was lost
    if owner and not held then
        recall(KEYS[i], owner, count)
        return {0, i, redis.call('pttl', KEYS[i]), owner}
    end
    local counter = KEYS[tonumber(ARGV[3 * i + 1])]
    if counter and not newest(counter) then
        return strange(counter)
    end
    locks[i] = {counter = counter, held = held, lease = ARGV[3 * i - 1], owner = ARGV[3 * i]}
end

local reply = {1}
for i, lock in ipairs(locks) do
    local answer
    if lock.held then
        answer = again(KEYS[i], lock.counter, lock.lease, redis.call('pttl', KEYS[i]))
    else
        answer = grant(KEYS[i], lock.counter, lock.lease, lock.owner)
    end
    if answer ~= 1 and answer[1] ~= 1 then -- all or none
        for j = 1, i do
            redis.call('del', KEYS[j])
        end
        return answer
    end
    reply[i + 1] = lock.counter and answer[2] or 0
end
return reply
